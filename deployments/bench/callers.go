package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// calling is a load: callers that each have a connection of their own and send one request after another on it, the
// next when the one before is answered.
type calling struct {
	Address     string   // host:port
	Connections int      // which are made before the time begins
	Seconds     float64  // for which requests are begun
	Most        int64    // requests in all; 0 for no bound
	First       int64    // number of the first request
	Request     string   // as it is sent; [numberMark] in it is replaced by the number of the request
	Status      int      // that each answer must have
	Head        string   // what must be in the head of each answer; it is looked for without regard to case
	Holds       []string // what must be in its decoded body
	Lacks       string   // what must not be in its head, likewise; empty for nothing
}

// called is what callers found.
type called struct {
	Count   int64   // answers
	Seconds float64 // from the first request to the last answer
	P50     float64 // µs from the first byte sent to the last one received; exact, by nearest rank
	P99     float64
	Max     float64
	CPU     float64 // µs of the callers themselves, in that time
	Bytes   float64 // of the bodies of all answers
	Wrong   int64   // answers that were not as they must be
	Example string  // one of those
}

// numberMark stands for the number of a request, which has as many digits.
const numberMark = "{number}"

// patience is how long callers wait for an answer beyond the time of their load.
const patience = 30 * time.Second

// runCallers writes what callers found as JSON. It is told a [calling] as JSON.
//
// They share the machine with what they measure. One thread of Go at a time is enough for more requests than any
// server here answers, and saves the processor time in which idle threads look for work.
func runCallers(ctx context.Context, o options) error {
	runtime.GOMAXPROCS(1)
	var c calling
	if err := json.Unmarshal([]byte(o.Tell), &c); err != nil {
		return fmt.Errorf("what callers are told: %w", err)
	}
	found, err := c.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// call has a load sent by a process of its own, and answers what it found. An answer that is not as it must be is an
// error: a figure of such a run is none.
func (r *rig) call(ctx context.Context, c calling) (called, error) {
	tell, err := json.Marshal(c)
	if err != nil {
		return called{}, fmt.Errorf("tell callers: %w", err)
	}
	child, err := r.startSelf(ctx, options{Tell: string(tell)}, "callers")
	if err != nil {
		return called{}, err
	}
	b, err := child.rest()
	if err != nil {
		return called{}, err
	}
	var found called
	if err := json.Unmarshal(b, &found); err != nil {
		return called{}, fmt.Errorf("what callers found: %w", err)
	}
	return found, found.check()
}

func (f *called) check() error {
	switch {
	case f.Wrong > 0:
		return fmt.Errorf("%d of %d answers were not what they must be, as this one:\n%s", f.Wrong, f.Count, f.Example)
	case f.Count == 0:
		return errors.New("nothing was asked for")
	}
	return nil
}

// run sends the load.
func (c *calling) run(ctx context.Context) (called, error) {
	callers := make([]*caller, c.Connections)
	var dialer net.Dialer
	for i := range callers {
		conn, err := dialer.DialContext(ctx, "tcp", c.Address)
		if err != nil {
			return called{}, fmt.Errorf("call: %w", err)
		}
		defer func() { _ = conn.Close() }() // all was read
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		callers[i] = newCaller(c, conn)
	}
	var next atomic.Int64
	next.Store(c.First)
	var all errgroup.Group
	begun, cpu := time.Now(), ownCPU()
	for _, one := range callers {
		all.Go(func() error { return one.serve(begun, &next) })
	}
	err := all.Wait()
	found := called{Seconds: time.Since(begun).Seconds(), CPU: ownCPU() - cpu}
	if err != nil {
		return called{}, err
	}
	found.add(callers)
	return found, nil
}

// add adds up what callers found.
func (f *called) add(callers []*caller) {
	var took []time.Duration
	for _, one := range callers {
		took = append(took, one.took...)
		f.Bytes += one.bytes
		if f.Wrong += one.wrong; f.Example == "" {
			f.Example = one.example
		}
	}
	f.Count = int64(len(took))
	slices.Sort(took)
	f.P50, f.P99, f.Max = rank(took, 0.5), rank(took, 0.99), rank(took, 1)
}

// rank answers the µs that the given part of some sorted times do not exceed; 0 of none.
func rank(sorted []time.Duration, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return float64(sorted[max(0, at)].Nanoseconds()) / 1e3
}

// caller is one connection of a load.
type caller struct {
	*calling
	conn    net.Conn
	in      *bufio.Reader
	request []byte // in which the numbers are written anew for each
	numbers []int  // where they stand in it
	answer  []byte // head and decoded body of the last one
	body    int    // where the body begins in it
	known   []byte // the last body that was right

	took    []time.Duration
	bytes   float64
	wrong   int64
	example string
}

func newCaller(c *calling, conn net.Conn) *caller {
	one := &caller{calling: c, conn: conn, in: bufio.NewReaderSize(conn, 32<<10), request: []byte(c.Request)}
	for from := 0; ; {
		at := strings.Index(c.Request[from:], numberMark)
		if at < 0 {
			return one
		}
		one.numbers = append(one.numbers, from+at)
		from += at + len(numberMark)
	}
}

// serve sends requests until the load is over.
func (c *caller) serve(begun time.Time, next *atomic.Int64) error {
	over := begun.Add(time.Duration(c.Seconds * float64(time.Second)))
	_ = c.conn.SetDeadline(over.Add(patience)) // a connection of TCP has deadlines
	for {
		now := time.Now()
		if !now.Before(over) {
			return nil
		}
		n := next.Add(1) - 1
		if c.Most > 0 && n >= c.First+c.Most {
			return nil
		}
		c.write(n)
		if _, err := c.conn.Write(c.request); err != nil {
			return fmt.Errorf("send request %d: %w", n, err)
		}
		status, err := c.read()
		if err != nil {
			return fmt.Errorf("read the answer to request %d: %w", n, err)
		}
		c.took = append(c.took, time.Since(now))
		c.bytes += float64(len(c.answer) - c.body)
		if !c.right(status) {
			c.wrong++
			c.example = string(c.answer)
		}
	}
}

// write writes the number of a request where it belongs.
func (c *caller) write(n int64) {
	for _, at := range c.numbers {
		rest := n
		for i := at + len(numberMark) - 1; i >= at; i-- {
			c.request[i] = byte('0' + rest%10)
			rest /= 10
		}
	}
}

// right reports that the last answer is as it must be. One whose body is that of a right one is not searched again,
// since callers must be cheap.
func (c *caller) right(status int) bool {
	head, body := c.answer[:c.body], c.answer[c.body:]
	if status != c.Status || !holds(head, c.Head) || c.Lacks != "" && holds(head, c.Lacks) {
		return false
	}
	if len(c.known) > 0 && bytes.Equal(body, c.known) {
		return true
	}
	for _, s := range c.Holds {
		if !bytes.Contains(body, []byte(s)) {
			return false
		}
	}
	c.known = append(c.known[:0], body...)
	return true
}

// holds looks for a text, whose letters are in lower case, in a head.
func holds(head []byte, lower string) bool {
	return lower == "" || bytes.Contains(head, []byte(lower)) || bytes.Contains(bytes.ToLower(head), []byte(lower))
}

// read reads an answer of HTTP/1.1, RFC 9112, whose body has a length or is chunked.
func (c *caller) read() (status int, err error) {
	c.answer = c.answer[:0]
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("no answer of HTTP/1.1: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("no status: %q", line)
	}
	c.answer = append(c.answer, line...)
	length, chunked := -1, false
	for {
		if line, err = c.line(); err != nil {
			return 0, err
		}
		c.answer = append(c.answer, line...)
		if len(line) <= 2 {
			break
		}
		if value, ok := field(line, "content-length"); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, fmt.Errorf("no length: %q", line)
			}
		} else if value, ok := field(line, "transfer-encoding"); ok {
			chunked = string(value) == "chunked"
		}
	}
	c.body = len(c.answer)
	switch {
	case chunked:
		return status, c.chunks()
	case length < 0:
		return 0, fmt.Errorf("an answer whose length is not told:\n%s", c.answer)
	}
	return status, c.take(length)
}

// line reads a line with its end. It is there until the next read.
func (c *caller) line() ([]byte, error) { return c.in.ReadSlice('\n') }

// take reads n bytes of a body.
func (c *caller) take(n int) error {
	at := len(c.answer)
	c.answer = slices.Grow(c.answer, n)[:at+n]
	_, err := io.ReadFull(c.in, c.answer[at:])
	return err
}

// chunks reads a chunked body; a trailer is not told from an error, since no server here sends one.
func (c *caller) chunks() error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return fmt.Errorf("no size of a chunk: %q", line)
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if line, err = c.line(); err != nil {
			return err
		}
		if len(line) > 2 {
			return fmt.Errorf("a chunk does not end where it says: %q", line)
		}
		if size == 0 {
			return nil
		}
	}
}

// field answers the value of a field of a head, if the line is of that field. The name is in lower case.
func field(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}
