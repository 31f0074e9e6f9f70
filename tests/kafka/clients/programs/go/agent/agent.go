// Package agent is shared by both Go agents: a JSON object a line in, one a line out.
package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Large is the most that a record may have in these tests.
const Large = 4 << 20

// A stream pauses after a burst: some thousands a second are load, and can all be checked.
const (
	burst = 40
	pause = 10 * time.Millisecond
)

// InFlight is how many records of a stream may wait for their answer.
const InFlight = 500

// Step is how many records a transaction has; of the transactions each Abort-th is aborted.
const (
	Step  = 10
	Abort = 3
)

// Header is a record's header: a name and base64, or null.
type Header struct {
	Name  string
	Value []byte
}

// UnmarshalJSON takes ["name", "base64"].
func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

// MarshalJSON gives ["name", "base64"].
func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

// Record travels with its bytes as base64, which is what encoding/json does with []byte.
type Record struct {
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs *int64   `json:"timestamp_ms"`
	Offset      int64    `json:"offset"`
}

// Request has the fields of every kind of request.
type Request struct {
	Do          string   `json:"do"`
	Topic       string   `json:"topic"`
	Topics      []string `json:"topics"`
	Partition   int32    `json:"partition"`
	Records     []Record `json:"records"`
	Codec       string   `json:"codec"`
	Acks        string   `json:"acks"`
	Idempotent  bool     `json:"idempotent"`
	Offset      int64    `json:"offset"`
	Count       int      `json:"count"`
	TimestampMs int64    `json:"timestamp_ms"`
	Member      string   `json:"member"`
	Group       string   `json:"group"`
	Source      string   `json:"source"`
	Target      string   `json:"target"`
	Instance    *string  `json:"instance"`
	SessionMs   int      `json:"session_ms"`
	Start       int64    `json:"start"`
	// Partitions are numbers in one kind of request, and a count in another.
	Partitions json.RawMessage `json:"partitions"`
}

// PartitionList is the partitions of a request that names them.
func (r *Request) PartitionList() (numbers []int32) {
	_ = json.Unmarshal(r.Partitions, &numbers)
	return numbers
}

// PartitionCount is the partitions of a request that counts them.
func (r *Request) PartitionCount() (count int64) {
	_ = json.Unmarshal(r.Partitions, &count)
	return count
}

// State is the state of a member.
type State struct {
	mutex    sync.Mutex
	assigned map[string]map[int32]bool
	seen     [][3]any
	joins    int
	failed   string
}

// Assign adds partitions; a first call counts as a join.
func (s *State) Assign(partitions map[string][]int32) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.assigned == nil {
		s.assigned = map[string]map[int32]bool{}
	}
	for topic, numbers := range partitions {
		if s.assigned[topic] == nil {
			s.assigned[topic] = map[int32]bool{}
		}
		for _, number := range numbers {
			s.assigned[topic][number] = true
		}
	}
	s.joins++
}

// Revoke removes partitions.
func (s *State) Revoke(partitions map[string][]int32) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			delete(s.assigned[topic], number)
		}
	}
}

// Clear removes all partitions.
func (s *State) Clear() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.assigned = nil
}

// See records that a record was seen.
func (s *State) See(topic string, partition int32, offset int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.seen = append(s.seen, [3]any{topic, partition, offset})
}

// Fail records the error that ended the member.
func (s *State) Fail(problem error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.failed = problem.Error()
}

// Answer returns the state as an answer.
func (s *State) Answer() map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	assigned := [][2]any{}
	for topic, numbers := range s.assigned {
		for number := range numbers {
			assigned = append(assigned, [2]any{topic, number})
		}
	}
	seen := append([][3]any{}, s.seen...)
	return map[string]any{
		"assigned": assigned, "seen": seen, "joins": s.joins, "failed": s.failed,
	}
}

// Numbers is the state of a stream.
type Numbers struct {
	mutex  sync.Mutex
	acked  [][3]int64
	failed [][2]any
	room   chan struct{}
	Stop   chan struct{}
	Ended  chan struct{}
}

// NewNumbers returns an empty state.
func NewNumbers() *Numbers {
	return &Numbers{
		room: make(chan struct{}, InFlight), Stop: make(chan struct{}), Ended: make(chan struct{}),
	}
}

// Run calls send with each next number until Stop is closed.
func (n *Numbers) Run(start int64, send func(number int64)) {
	for number := start; ; number++ {
		select {
		case <-n.Stop:
			close(n.Ended)
			return
		case n.room <- struct{}{}:
			if number%burst == 0 {
				time.Sleep(pause)
			}
			send(number)
		}
	}
}

// Value is the value sent for a number.
func Value(number int64) []byte {
	made := []byte(fmt.Sprintf("%d:", number))
	for i := int64(0); i < number*7%300; i++ {
		made = append(made, 'v')
	}
	return made
}

// Note records the outcome of a number.
func (n *Numbers) Note(number int64, partition int32, offset int64, problem error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	<-n.room
	if problem != nil {
		n.failed = append(n.failed, [2]any{number, problem.Error()})
	} else {
		n.acked = append(n.acked, [3]int64{number, int64(partition), offset})
	}
}

// Answer returns the state as an answer.
func (n *Numbers) Answer() map[string]any {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return map[string]any{
		"acked": append([][3]int64{}, n.acked...), "failed": append([][2]any{}, n.failed...),
	}
}

// Handler answers one kind of request.
type Handler func(*Request) (map[string]any, error)

// Serve answers requests until standard input ends.
func Serve(handlers map[string]Handler) {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := handle(line, handlers)
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		said, _ := json.Marshal(answer)
		fmt.Println(string(said))
	}
}

func handle(line []byte, handlers map[string]Handler) (answer map[string]any, err error) {
	request := Request{}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	return handlers[request.Do](&request)
}
