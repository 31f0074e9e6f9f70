// The agent of sarama.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"clients/agent"

	"github.com/IBM/sarama"
)

var (
	bootstrap = []string{os.Args[1]}
	members   = map[string]*member{}
	numbers   *agent.Numbers
	sender    sarama.AsyncProducer
	drained   chan struct{}
)

type answer = map[string]any

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{
	"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
}

func settings() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V2_8_0_0
	made.Metadata.RefreshFrequency = time.Second
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Consumer.Fetch.Default = agent.Large
	made.Producer.MaxMessageBytes = agent.Large
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.Return.Successes = true
	made.Producer.Retry.Max = 200
	return made
}

func producerSettings(request *agent.Request) *sarama.Config {
	made := settings()
	made.Producer.Compression = codecs[request.Codec]
	made.Producer.RequiredAcks = acks[request.Acks]
	made.Producer.Idempotent = request.Idempotent
	if request.Idempotent {
		made.Net.MaxOpenRequests = 1
	}
	return made
}

func message(topic string, partition int32, fields *agent.Record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: topic, Partition: partition}
	if fields.Key != nil {
		made.Key = sarama.ByteEncoder(fields.Key)
	}
	if fields.Value != nil {
		made.Value = sarama.ByteEncoder(fields.Value)
	}
	for _, header := range fields.Headers {
		made.Headers = append(
			made.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	if fields.TimestampMs != nil {
		made.Timestamp = time.UnixMilli(*fields.TimestampMs)
	}
	return made
}

func produce(request *agent.Request) (answer, error) {
	producer, err := sarama.NewSyncProducer(bootstrap, producerSettings(request))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := []*sarama.ProducerMessage{}
	for i := range request.Records {
		messages = append(
			messages, message(request.Topic, request.Partition, &request.Records[i]))
	}
	var lost sarama.ProducerErrors
	if err := producer.SendMessages(messages); errors.As(err, &lost) {
		return nil, lost[0].Err
	} else if err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, one := range messages {
		if request.Acks == "0" {
			one.Offset = -1
		}
		offsets = append(offsets, one.Offset)
	}
	return answer{"offsets": offsets}, nil
}

func consume(request *agent.Request) (answer, error) {
	consumer, err := sarama.NewConsumer(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(request.Topic, request.Partition, request.Offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	found, late := []agent.Record{}, time.After(20*time.Second)
	for len(found) < request.Count {
		select {
		case got := <-partition.Messages():
			at := got.Timestamp.UnixMilli()
			made := agent.Record{
				Key: got.Key, Value: got.Value, Headers: []agent.Header{}, TimestampMs: &at,
				Offset: got.Offset,
			}
			for _, header := range got.Headers {
				made.Headers = append(
					made.Headers, agent.Header{Name: string(header.Key), Value: header.Value})
			}
			found = append(found, made)
		case <-late:
			return nil, errors.New("consume: not in time")
		}
	}
	return answer{"records": found}, nil
}

func timed(request *agent.Request) (answer, error) {
	client, err := sarama.NewClient(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := client.GetOffset(request.Topic, request.Partition, request.TimestampMs)
	if err == nil && found < 0 {
		found, err = client.GetOffset(request.Topic, request.Partition, sarama.OffsetNewest)
	}
	return answer{"offset": found}, err
}

func committed(request *agent.Request) (answer, error) {
	admin, err := sarama.NewClusterAdmin(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	wanted := map[string][]int32{request.Topic: request.PartitionList()}
	found, err := admin.ListConsumerGroupOffsets(request.Group, wanted)
	if err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, number := range request.PartitionList() {
		offsets = append(offsets, found.GetBlock(request.Topic, number).Offset)
	}
	return answer{"offsets": offsets}, nil
}

type member struct {
	agent.State
	group   sarama.ConsumerGroup
	session sarama.ConsumerGroupSession
	cancel  context.CancelFunc
	ended   chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.session = session
	m.Assign(session.Claims())
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.Clear()
	return nil
}

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for got := range claim.Messages() {
		session.MarkMessage(got, "")
		m.See(got.Topic, got.Partition, got.Offset)
	}
	return nil
}

func join(request *agent.Request) (answer, error) {
	made := settings()
	made.Consumer.Group.Session.Timeout = time.Duration(request.SessionMs) * time.Millisecond
	made.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	made.Consumer.Group.Rebalance.Timeout = 20 * time.Second
	made.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(),
	}
	if request.Instance != nil {
		made.Consumer.Group.InstanceId = *request.Instance
	}
	group, err := sarama.NewConsumerGroup(bootstrap, request.Group, made)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	joined := &member{group: group, cancel: cancel, ended: make(chan struct{})}
	members[request.Member] = joined
	go func() {
		defer close(joined.ended)
		for ctx.Err() == nil {
			err := group.Consume(ctx, request.Topics, joined)
			if errors.Is(err, sarama.ErrFencedInstancedId) {
				joined.Fail(err)
				return
			}
		}
	}()
	return answer{}, nil
}

func commit(request *agent.Request) (answer, error) {
	members[request.Member].session.Commit()
	return answer{}, nil
}

func leave(request *agent.Request) (answer, error) {
	gone := members[request.Member]
	gone.cancel()
	err := gone.group.Close()
	<-gone.ended
	gone.Clear()
	return answer{}, err
}

func state(request *agent.Request) (answer, error) {
	return members[request.Member].Answer(), nil
}

func tour(request *agent.Request) (answer, error) {
	admin, err := sarama.NewClusterAdmin(bootstrap, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	topic, said, retention := request.Topic, answer{}, "3600000"
	setting := func() string {
		found, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
		})
		if err != nil || len(found) != 1 {
			return "none"
		}
		return found[0].Value
	}
	partitions := func() int {
		found, err := admin.DescribeTopics([]string{topic})
		if err != nil {
			return -1
		}
		return len(found[0].Partitions)
	}
	detail := &sarama.TopicDetail{
		NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return nil, err
	}
	said["partitions"], said["retention"] = partitions(), setting()
	var known *sarama.TopicError
	if errors.As(admin.CreateTopic(topic, detail, false), &known) {
		said["again"] = int16(known.Err)
	}
	if err := admin.CreatePartitions(topic, 5, nil, false); err != nil {
		return nil, err
	}
	said["grown"] = partitions()
	retention = "7200000"
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &retention,
		},
	}
	err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, change, false)
	if err != nil {
		return nil, err
	}
	said["altered"] = setting()
	return said, admin.DeleteTopic(topic)
}

func stream(request *agent.Request) (answer, error) {
	producer, err := sarama.NewAsyncProducer(bootstrap, producerSettings(request))
	if err != nil {
		return nil, err
	}
	sender, numbers, drained = producer, agent.NewNumbers(), make(chan struct{})
	mine, partitions := numbers, request.PartitionCount()
	go func() {
		defer close(drained)
		successes, failures := producer.Successes(), producer.Errors()
		for successes != nil || failures != nil {
			select {
			case done, open := <-successes:
				if !open {
					successes = nil
					continue
				}
				mine.Note(done.Metadata.(int64), done.Partition, done.Offset, nil)
			case lost, open := <-failures:
				if !open {
					failures = nil
					continue
				}
				mine.Note(lost.Msg.Metadata.(int64), lost.Msg.Partition, -1, lost.Err)
			}
		}
	}()
	go mine.Run(request.Start, func(number int64) {
		fields := agent.Record{Key: []byte("k"), Value: agent.Value(number)}
		made := message(request.Topic, int32(number%partitions), &fields)
		made.Metadata = number
		producer.Input() <- made
	})
	return answer{}, nil
}

func acked(*agent.Request) (answer, error) { return numbers.Answer(), nil }

func stop(*agent.Request) (answer, error) {
	close(numbers.Stop)
	<-numbers.Ended
	sender.AsyncClose()
	<-drained
	return numbers.Answer(), nil
}

func transform(request *agent.Request) (answer, error) {
	made := producerSettings(&agent.Request{Codec: "none", Acks: "all", Idempotent: true})
	made.Producer.Transaction.ID = request.Group
	producer, err := sarama.NewSyncProducer(bootstrap, made)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	made = settings()
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(bootstrap, made)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(request.Source, 0, 0)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	tries, late := 0, time.After(20*time.Second)
	for done := 0; done < request.Count; done += agent.Step {
		batch := []*sarama.ProducerMessage{}
		var next int64
		for len(batch) < agent.Step {
			select {
			case got := <-partition.Messages():
				fields := agent.Record{Value: got.Value}
				batch, next = append(batch, message(request.Target, 0, &fields)), got.Offset+1
			case <-late:
				return nil, errors.New("transform: not in time")
			}
		}
		for ended := false; !ended; ended = tries%agent.Abort != 0 {
			tries++
			if err := transfer(producer, request, batch, next, tries); err != nil {
				return nil, err
			}
		}
	}
	return answer{"tries": tries}, nil
}

func transfer(
	producer sarama.SyncProducer, request *agent.Request, batch []*sarama.ProducerMessage,
	next int64, tries int,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(batch); err != nil {
		return err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{
		request.Source: {{Partition: 0, Offset: next}},
	}
	if err := producer.AddOffsetsToTxn(offsets, request.Group); err != nil {
		return err
	}
	if tries%agent.Abort == 0 {
		return producer.AbortTxn()
	}
	return producer.CommitTxn()
}

func main() {
	agent.Serve(map[string]agent.Handler{
		"produce": produce, "consume": consume, "time": timed, "committed": committed,
		"join": join, "commit": commit, "leave": leave, "state": state, "tour": tour,
		"stream": stream, "acked": acked, "stop": stop, "transform": transform,
	})
}
