package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// half is the part of a call that a wire holds.
type half int

const (
	request half = iota // the command, which Redis has not seen
	reply               // the answer to what Redis has carried out
)

// wire is a proxy between processes and Redis that understands the protocol (RESP 2 and 3)
// enough to see each command and to know which answer is whose. It can hold the first
// command that a test asks for, so that a process is killed at just that point.
type wire struct {
	t        *testing.T
	redis    string // its address
	listener net.Listener
	latency  atomic.Int64 // of each answer, in ns

	mu    sync.Mutex
	conns map[net.Conn]bool
	holds []*hold

	closed chan struct{}
	work   sync.WaitGroup
}

// hold is what a wire waits for.
type hold struct {
	at      half
	match   func(command []string) bool
	always  bool          // cuts the connection of every command that matches
	reached chan struct{} // closed when the command is held
	verdict chan bool     // true: it goes on; false: its connection is cut
	hits    atomic.Int64
}

// newWire puts a wire before the Redis of a deployment.
func newWire(d *deployment) *wire {
	d.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.t.Fatal(err)
	}
	w := &wire{
		t: d.t, redis: d.redis.Addr, listener: l, conns: map[net.Conn]bool{}, closed: make(chan struct{}),
	}
	w.work.Go(w.accept)
	d.t.Cleanup(func() { // runs when the processes have ended: they are started later
		close(w.closed)
		_ = l.Close()
		w.cut()
		w.work.Wait()
	})
	return w
}

// setting has a process, which is the given user, reach Redis through the wire.
func (w *wire) setting(d *deployment, user string) string {
	w.t.Helper()
	const name = "TRAWL_REDIS_URL="
	all := d.redis.settings(user)
	i := slices.IndexFunc(all, func(s string) bool { return strings.HasPrefix(s, name) })
	u, err := url.Parse(strings.TrimPrefix(all[i], name))
	if err != nil {
		w.t.Fatal(err)
	}
	u.Host = w.listener.Addr().String()
	return name + u.String()
}

// hold arms the wire for the next command that matches.
func (w *wire) hold(at half, match func([]string) bool) *hold {
	return w.add(&hold{at: at, match: match, reached: make(chan struct{}), verdict: make(chan bool, 1)})
}

// refuse cuts the connection of every command that matches, until lift.
func (w *wire) refuse(at half, match func([]string) bool) *hold {
	return w.add(&hold{at: at, match: match, always: true})
}

func (w *wire) add(h *hold) *hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
	return h
}

// lift ends a hold; a command that is held stays held.
func (w *wire) lift(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = slices.DeleteFunc(w.holds, func(x *hold) bool { return x == h })
}

// wait waits until the command is held.
func (h *hold) wait(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-h.reached:
	case <-timer.C:
		t.Fatal("the command that was to be held has not come")
	}
}

// pass has the held command go on; drop cuts its connection.
func (h *hold) pass() { h.verdict <- true }
func (h *hold) drop() { h.verdict <- false }

// cut closes all connections; new ones are taken.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

// slow delays every answer from now on, those of one read as one.
func (w *wire) slow(by time.Duration) { w.latency.Store(int64(by)) }

// keep remembers a connection; false when the wire is closed.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.closed:
		_ = c.Close()
		return false
	default:
	}
	w.conns[c] = true
	return true
}

func (w *wire) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c)
	_ = c.Close()
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		if w.keep(client) {
			w.work.Go(func() { w.serve(client) })
		}
	}
}

// serve carries one connection until either side is closed.
func (w *wire) serve(client net.Conn) {
	defer w.forget(client)
	server, err := net.Dial("tcp", w.redis)
	if err != nil || !w.keep(server) {
		return
	}
	defer w.forget(server)
	l := &line{w: w, client: client, server: server}
	var down sync.WaitGroup
	down.Go(func() { l.answers(); _ = client.Close() })
	l.commands()
	_ = server.Close()
	down.Wait()
}

// line is one connection through a wire.
type line struct {
	w              *wire
	client, server net.Conn

	mu     sync.Mutex
	sent   []*hold // of each command whose answer is to come; nil: nobody waits for it
	pubsub atomic.Bool
}

// commands passes on what the client sends.
func (l *line) commands() {
	in, out := bufio.NewReader(l.client), bufio.NewWriter(l.server)
	for {
		command, raw, err := readCommand(in)
		if err != nil {
			return
		}
		if strings.HasSuffix(strings.ToUpper(command[0]), "SUBSCRIBE") {
			l.pubsub.Store(true) // from here on answers come without commands
		}
		if h := l.w.matching(request, command); h != nil {
			if out.Flush() != nil || !l.held(h) {
				return
			}
		}
		l.mu.Lock()
		l.sent = append(l.sent, l.w.matching(reply, command))
		l.mu.Unlock()
		_, _ = out.Write(raw) // Flush tells
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// answers passes on what the server answers.
func (l *line) answers() {
	in, out := bufio.NewReader(l.server), bufio.NewWriter(l.client)
	for {
		var raw bytes.Buffer
		kind, err := readReply(in, &raw)
		if err != nil {
			return
		}
		if kind != '>' && !l.pubsub.Load() {
			l.mu.Lock()
			var h *hold
			if len(l.sent) > 0 {
				h, l.sent = l.sent[0], l.sent[1:]
			}
			l.mu.Unlock()
			if h != nil && (out.Flush() != nil || !l.held(h)) {
				return
			}
		}
		_, _ = out.Write(raw.Bytes()) // Flush tells
		if in.Buffered() > 0 {
			continue
		}
		if by := time.Duration(l.w.latency.Load()); by > 0 && !l.wait(by) {
			return
		}
		if out.Flush() != nil {
			return
		}
	}
}

func (l *line) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.w.closed:
		return false
	}
}

// held holds until the test decides; false: the connection is to be cut.
func (l *line) held(h *hold) bool {
	if h.always {
		return false
	}
	close(h.reached)
	select {
	case on := <-h.verdict:
		return on
	case <-l.w.closed:
		return false
	}
}

// matching returns the hold that a command meets, nil for none. Others than those that
// always cut are met once.
func (w *wire) matching(at half, command []string) *hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, h := range w.holds {
		if h.at == at && h.match(command) {
			h.hits.Add(1)
			if !h.always {
				w.holds = slices.Delete(w.holds, i, i+1)
			}
			return h
		}
	}
	return nil
}

var errProtocol = errors.New("this is no RESP")

// readCommand reads a command: an array of bulk strings.
func readCommand(in *bufio.Reader) (command []string, raw []byte, err error) {
	var buf bytes.Buffer
	n, err := readLength(in, &buf, '*')
	if err != nil || n < 1 {
		return nil, nil, errors.Join(err, errProtocol)
	}
	for range n {
		size, err := readLength(in, &buf, '$')
		if err != nil {
			return nil, nil, err
		}
		at := buf.Len()
		if _, err := io.CopyN(&buf, in, int64(size)+2); err != nil {
			return nil, nil, err
		}
		command = append(command, string(buf.Bytes()[at:at+size]))
	}
	return command, buf.Bytes(), nil
}

func readLength(in *bufio.Reader, raw *bytes.Buffer, kind byte) (int, error) {
	text, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	raw.WriteString(text)
	if text[0] != kind {
		return 0, fmt.Errorf("%w: %q", errProtocol, text)
	}
	return strconv.Atoi(strings.TrimSpace(text[1:]))
}

// readReply reads one answer with all that is in it, and returns its kind; a push ('>')
// answers no command.
func readReply(in *bufio.Reader, raw *bytes.Buffer) (byte, error) {
	text, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	raw.WriteString(text)
	parts := 0
	switch text[0] {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		if parts, err = strconv.Atoi(strings.TrimSpace(text[1:])); err != nil {
			return 0, err
		}
	}
	switch text[0] {
	case '$', '=', '!':
		if parts >= 0 {
			_, err = io.CopyN(raw, in, int64(parts)+2)
		}
		return text[0], err
	case '%':
		parts *= 2
	case '|': // attributes, and then what they are of
		parts = 2*parts + 1
	}
	for range parts {
		if _, err := readReply(in, raw); err != nil {
			return 0, err
		}
	}
	return text[0], nil
}

// keysOf returns the keys of a script's call; none of another command.
func keysOf(command []string) []string {
	if len(command) < 3 || !strings.HasPrefix(strings.ToUpper(command[0]), "EVAL") {
		return nil
	}
	n, err := strconv.Atoi(command[2])
	if err != nil || n < 0 || len(command) < 3+n {
		return nil
	}
	return command[3 : 3+n]
}

// enqueues matches what puts a ring into the queue: asynq's script, whose first key is the task.
func enqueues(command []string) bool {
	keys := keysOf(command)
	return len(keys) > 0 && strings.HasPrefix(keys[0], "asynq:{crawl}:t:")
}

// creates matches what stores a submission: the one script with three keys, see create.lua.
func creates(command []string) bool {
	keys := keysOf(command)
	return len(keys) == 3 && strings.HasPrefix(keys[1], keys[0]+":j:")
}

// controls matches a script about one job.
func controls(job string) func([]string) bool {
	return func(command []string) bool {
		keys := keysOf(command)
		return len(keys) == 2 && strings.HasSuffix(keys[1], ":j:"+job)
	}
}

// frontAPI is one more API process.
type frontAPI struct {
	*crawltest.Proc
	url string
}

// startAPI starts one more API, with settings of its own on top.
func (d *deployment) startAPI(settings ...string) *frontAPI {
	d.t.Helper()
	p := d.run("example.com/trawl/api", settings...)
	return &frontAPI{Proc: p, url: "http://" + p.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]}
}

// ringKey and the others are asynq's names of what a queue is in.
const (
	pendingKey = "asynq:{crawl}:pending"
	activeKey  = "asynq:{crawl}:active"
	leaseKey   = "asynq:{crawl}:lease"
	taskKey    = "asynq:{crawl}:t:"
)

// queueEmpties waits until nothing is in the queue, in whatever state.
func (d *deployment) queueEmpties() {
	d.t.Helper()
	var left []string
	crawltest.Eventually(d.t, long, "the queue is empty", func() bool {
		left = nil
		pipe := d.redis.Client.Pipeline()
		lists := []string{pendingKey, activeKey}
		sets := []string{leaseKey, "asynq:{crawl}:retry", "asynq:{crawl}:scheduled", "asynq:{crawl}:archived"}
		for _, k := range lists {
			pipe.LLen(d.t.Context(), k)
		}
		for _, k := range sets {
			pipe.ZCard(d.t.Context(), k)
		}
		cmds, err := pipe.Exec(d.t.Context())
		if err != nil {
			return false
		}
		for i, c := range cmds {
			if n := c.(interface{ Val() int64 }).Val(); n > 0 {
				left = append(left, fmt.Sprintf("%s: %d", append(lists, sets...)[i], n))
			}
		}
		return len(left) == 0
	})
}

// jobKey is the name of a job in Redis.
func jobKey(tenant, id string) string { return "{t:" + tenant + "}:j:" + id }

// tagged lists the jobs of a tenant that have a tag.
func (d *deployment) tagged(tenant, tag string) []crawl.Job {
	d.t.Helper()
	res, body := d.exchange("GET", d.url+"/v1/jobs?limit=100&tag="+tag, d.as(tenant), "")
	if res.StatusCode != 200 {
		d.t.Fatalf("list answered %d: %s", res.StatusCode, body)
	}
	return decode[struct{ Items []crawl.Job }](d.t, body).Items
}
