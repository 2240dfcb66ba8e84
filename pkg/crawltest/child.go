package crawltest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// child is a running process whose output is kept. It is waited for by one
// goroutine, which ends with it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and its output is complete
	out  transcript
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, done: make(chan struct{}), out: transcript{changed: make(chan struct{})}}
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(c.done)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	return c, nil
}

// signal sends sig; a process that has ended already is no error.
func (c *child) signal(sig os.Signal) {
	select {
	case <-c.done:
	default:
		_ = c.cmd.Process.Signal(sig) // fails only when it ended meanwhile
	}
}

func (c *child) kill() {
	c.signal(os.Kill)
	<-c.done
}

// transcript collects output and tells readers that there is more.
type transcript struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{} // closed and replaced on each write
}

// Write implements io.Writer.
func (o *transcript) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.buf.Write(p)
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// find returns the first match with its groups, or nil and a channel that is
// closed when there is more to look at. Only whole lines are looked at: half of
// an address matches an address, too.
func (o *transcript) find(re *regexp.Regexp) ([]string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.buf.Bytes()
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	return re.FindStringSubmatch(string(whole)), o.changed
}

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens now.
// Another process can take it before it is used: listen on port 0 where the
// thing under test can say what it got.
func FreePort(t testing.TB) int {
	t.Helper()
	p, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// freePort returns a port that is free now. It is below those that the kernel gives to whoever asks
// for any (RFC 6335 begins them at 49152, Linux at 32768): one of these could be another's the next
// moment, and what is down on purpose, to listen there later, would find it taken.
func freePort() (int, error) {
	var err error
	for range 100 {
		var l *net.TCPListener
		port := 20000 + rand.IntN(12000)
		if l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// FreeAddr returns "127.0.0.1:port" with a port as of [FreePort].
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
}
