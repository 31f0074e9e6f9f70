// The agent of franz-go.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"clients/agent"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap = os.Args[1]
	members   = map[string]*member{}
	numbers   *agent.Numbers
	sender    *kgo.Client
)

type member struct {
	agent.State
	client *kgo.Client
	ended  chan struct{}
}

type answer = map[string]any

func within() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Second, cancel)
	return ctx
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{
	"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks(),
}

func producer(request *agent.Request) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codecs[request.Codec]),
		kgo.RequiredAcks(acks[request.Acks]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.ProducerBatchMaxBytes(agent.Large), kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !request.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return kgo.NewClient(options...)
}

func produce(request *agent.Request) (answer, error) {
	client, err := producer(request)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, fields := range request.Records {
		record := &kgo.Record{
			Topic: request.Topic, Partition: request.Partition, Key: fields.Key, Value: fields.Value,
		}
		for _, header := range fields.Headers {
			record.Headers = append(
				record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		if fields.TimestampMs != nil {
			record.Timestamp = time.UnixMilli(*fields.TimestampMs)
		}
		records = append(records, record)
	}
	if err := client.ProduceSync(within(), records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, record := range records {
		if request.Acks == "0" {
			record.Offset = -1
		}
		offsets = append(offsets, record.Offset)
	}
	return answer{"offsets": offsets}, nil
}

func consume(request *agent.Request) (answer, error) {
	start := map[string]map[int32]kgo.Offset{
		request.Topic: {request.Partition: kgo.NewOffset().At(request.Offset)},
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(start), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []agent.Record{}
	for ctx := within(); len(found) < request.Count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			at := record.Timestamp.UnixMilli()
			made := agent.Record{
				Key: record.Key, Value: record.Value, Headers: []agent.Header{},
				TimestampMs: &at, Offset: record.Offset,
			}
			for _, header := range record.Headers {
				made.Headers = append(
					made.Headers, agent.Header{Name: header.Key, Value: header.Value})
			}
			found = append(found, made)
		})
	}
	return answer{"records": found[:request.Count]}, nil
}

func admin() (*kadm.Client, error) {
	return kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
}

func timed(request *agent.Request) (answer, error) {
	client, err := admin()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.ListOffsetsAfterMilli(within(), request.TimestampMs, request.Topic)
	if err != nil {
		return nil, err
	}
	one, _ := found.Lookup(request.Topic, request.Partition)
	return answer{"offset": one.Offset}, one.Err
}

func committed(request *agent.Request) (answer, error) {
	client, err := admin()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.FetchOffsets(within(), request.Group)
	if err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, number := range request.PartitionList() {
		one, there := found.Lookup(request.Topic, number)
		if !there {
			one.At = -1
		}
		offsets = append(offsets, one.At)
	}
	return answer{"offsets": offsets}, nil
}

func join(request *agent.Request) (answer, error) {
	made := &member{ended: make(chan struct{})}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topics...), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(time.Duration(request.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(200 * time.Millisecond), kgo.RebalanceTimeout(20 * time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			made.Assign(got)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			made.Revoke(lost)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			made.Revoke(lost)
		}),
	}
	if request.Instance != nil {
		options = append(options, kgo.InstanceID(*request.Instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	made.client = client
	members[request.Member] = made
	go made.poll()
	return answer{}, nil
}

func (m *member) poll() {
	defer close(m.ended)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			if errors.Is(err, kerr.FencedInstanceID) {
				m.Fail(err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			m.See(record.Topic, record.Partition, record.Offset)
		})
	}
}

func commit(request *agent.Request) (answer, error) {
	return answer{}, members[request.Member].client.CommitUncommittedOffsets(within())
}

func leave(request *agent.Request) (answer, error) {
	gone := members[request.Member]
	gone.client.Close()
	<-gone.ended
	gone.Clear()
	return answer{}, nil
}

func state(request *agent.Request) (answer, error) {
	return members[request.Member].Answer(), nil
}

func tour(request *agent.Request) (answer, error) {
	client, err := admin()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, topic, said := within(), request.Topic, answer{}
	retention := "3600000"
	setting := func() string {
		found, err := client.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return err.Error()
		}
		for _, config := range found[0].Configs {
			if config.Key == "retention.ms" {
				return *config.Value
			}
		}
		return ""
	}
	partitions := func() int {
		found, err := client.ListTopics(ctx, topic)
		if err != nil {
			return -1
		}
		return len(found[topic].Partitions)
	}
	settings := map[string]*string{"retention.ms": &retention}
	if _, err := client.CreateTopic(ctx, 3, 1, settings, topic); err != nil {
		return nil, err
	}
	said["partitions"], said["retention"] = partitions(), setting()
	_, err = client.CreateTopic(ctx, 3, 1, settings, topic)
	var known *kerr.Error
	if errors.As(err, &known) {
		said["again"] = known.Code
	}
	grown, err := client.UpdatePartitions(ctx, 5, topic)
	if err == nil {
		err = grown.Error()
	}
	if err != nil {
		return nil, err
	}
	said["grown"] = partitions()
	retention = "7200000"
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &retention}}
	if _, err := client.AlterTopicConfigs(ctx, change, topic); err != nil {
		return nil, err
	}
	said["altered"] = setting()
	gone, err := client.DeleteTopics(ctx, topic)
	if err == nil {
		err = gone.Error()
	}
	return said, err
}

func stream(request *agent.Request) (answer, error) {
	client, err := producer(request)
	if err != nil {
		return nil, err
	}
	sender, numbers = client, agent.NewNumbers()
	partitions, mine := request.PartitionCount(), numbers
	go mine.Run(request.Start, func(number int64) {
		record := &kgo.Record{
			Topic: request.Topic, Partition: int32(number % partitions), Key: []byte("k"),
			Value: agent.Value(number),
		}
		client.Produce(context.Background(), record, func(done *kgo.Record, err error) {
			mine.Note(number, done.Partition, done.Offset, err)
		})
	})
	return answer{}, nil
}

func acked(*agent.Request) (answer, error) { return numbers.Answer(), nil }

func stop(*agent.Request) (answer, error) {
	close(numbers.Stop)
	<-numbers.Ended
	err := sender.Flush(within())
	sender.Close()
	return numbers.Answer(), err
}

func transform(request *agent.Request) (answer, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(request.Group),
		kgo.ConsumerGroup(request.Group), kgo.ConsumeTopics(request.Source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	done, tries := 0, 0
	for ctx := within(); done < request.Count; {
		fetches := session.PollRecords(ctx, agent.Step)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		sent := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			made := &kgo.Record{Topic: request.Target, Value: record.Value}
			session.Produce(ctx, made, sent.Promise())
		})
		if err := sent.Err(); err != nil {
			return nil, err
		}
		tries++
		committed, err := session.End(ctx, kgo.TransactionEndTry(tries%agent.Abort != 0))
		if err != nil {
			return nil, err
		}
		if committed {
			done += fetches.NumRecords()
		}
	}
	return answer{"tries": tries}, nil
}

func main() {
	agent.Serve(map[string]agent.Handler{
		"produce": produce, "consume": consume, "time": timed, "committed": committed,
		"join": join, "commit": commit, "leave": leave, "state": state, "tour": tour,
		"stream": stream, "acked": acked, "stop": stop, "transform": transform,
	})
}
