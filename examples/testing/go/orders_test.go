// What a suite in Go looks like: go test.
package example

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func client(t *testing.T, broker *Broker, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(broker.Address), kgo.DefaultProduceTopic("orders"))
	made, err := kgo.NewClient(options...)
	must(t, err)
	t.Cleanup(made.Close)
	return made
}

// read gives the values of the topic from its beginning on.
func read(ctx context.Context, t *testing.T, broker *Broker, count int) []string {
	reader := client(t, broker, kgo.ConsumeTopics("orders"))
	var values []string
	for len(values) < count {
		fetches := reader.PollFetches(ctx)
		must(t, ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func TestAProducerSurvivesAMove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker := Start(t, "--topic", "orders")
	producer := client(t, broker)
	broker.Say(t, "fail Produce NOT_LEADER_OR_FOLLOWER 2")
	must(t, producer.ProduceSync(ctx, kgo.StringRecord("one")).FirstErr())
	if values := read(ctx, t, broker, 1); values[0] != "one" {
		t.Fatalf("found %v", values)
	}
}

func TestAPowerCutLosesWhatNobodyWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker := Start(t, "--topic", "orders")
	must(t, client(t, broker).ProduceSync(ctx, kgo.StringRecord("kept")).FirstErr())
	hasty := client(t, broker, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	must(t, hasty.ProduceSync(ctx, kgo.StringRecord("lost")).FirstErr())
	broker.Say(t, "kill")
	broker.Say(t, "start")
	must(t, client(t, broker).ProduceSync(ctx, kgo.StringRecord("next")).FirstErr())
	if values := read(ctx, t, broker, 2); values[0] != "kept" || values[1] != "next" {
		t.Fatalf("found %v", values)
	}
}
