package example

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A Broker is `kafkalog test-broker`: it ends with this process, however that ends.
type Broker struct {
	Address string
	in      io.WriteCloser
	out     *bufio.Scanner
}

// Start begins a broker, which ends with the test.  KAFKALOG names the command, if it is not in PATH.
func Start(t *testing.T, arguments ...string) *Broker {
	words := strings.Fields(os.Getenv("KAFKALOG"))
	if len(words) == 0 {
		words = []string{"kafkalog"}
	}
	words = append(append(words, "test-broker"), arguments...)
	command := exec.Command(words[0], words[1:]...)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	must(t, err)
	out, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	broker := &Broker{in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		command.Wait()
	})
	broker.Address = broker.line(t)
	return broker
}

// Say gives a command, such as "fail Produce NOT_LEADER_OR_FOLLOWER 2".
func (b *Broker) Say(t *testing.T, command string) {
	_, err := fmt.Fprintln(b.in, command)
	must(t, err)
	if answer := b.line(t); answer != "ok" {
		t.Fatalf("%s: %s", command, answer)
	}
}

func (b *Broker) line(t *testing.T) string {
	if !b.out.Scan() {
		t.Fatalf("the broker ended: %v", b.out.Err())
	}
	return b.out.Text()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
