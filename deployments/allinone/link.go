package allinone

import (
	"net"
	"sync"
	"time"
)

// maxKept is how much room of a buffer a link keeps between two writes, in bytes: a large
// submission does not stay in memory.
const maxKept = 64 << 10

// link is a client's end of a connection within the process. A write to a bare net.Pipe
// waits until it is read, and miniredis reads no further than to the command that it
// answers, while the client reads answers only after its last command: a long pipeline
// would wait for itself. So link keeps what is written until it is read, as the kernel
// does for a socket, but without a bound: it is no more than the client holds anyway.
type link struct {
	net.Conn
	written chan struct{} // holds one when there is something in queue
	closed  chan struct{}
	close   func() error

	mu    sync.Mutex
	queue []byte
}

func newLink(pipe net.Conn) *link {
	l := &link{Conn: pipe, written: make(chan struct{}, 1), closed: make(chan struct{})}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return pipe.Close()
	})
	go l.pump()
	return l
}

// Write implements net.Conn. It never waits.
func (l *link) Write(p []byte) (int, error) {
	select {
	case <-l.closed:
		return 0, net.ErrClosed
	default:
	}
	l.mu.Lock()
	l.queue = append(l.queue, p...)
	l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return len(p), nil
}

// pump hands on what was written, until either end is closed.
func (l *link) pump() {
	var sent []byte
	for {
		select {
		case <-l.closed:
			return
		case <-l.written:
		}
		if cap(sent) > maxKept {
			sent = nil
		}
		l.mu.Lock()
		sent, l.queue = l.queue, sent[:0] // the two take turns, so that few writes allocate
		l.mu.Unlock()
		if _, err := l.Conn.Write(sent); err != nil {
			_ = l.Close() // the client learns it from its next read
			return
		}
	}
}

// Close implements net.Conn. What was not read yet is lost.
func (l *link) Close() error { return l.close() }

// SetDeadline implements net.Conn.
func (l *link) SetDeadline(t time.Time) error { return l.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn. Writes need none.
func (l *link) SetWriteDeadline(time.Time) error { return nil }
