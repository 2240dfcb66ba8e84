package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// The directions of a link: from who connects to who is connected to, and back.
const (
	upstream   = "upstream"
	downstream = "downstream"
)

// weather is what a link does to the bytes on it. One weather follows another; over is closed when this one ends.
type weather struct {
	late    time.Duration
	swallow string // a direction, or none
	closes  bool   // every connection, old or new
	over    chan struct{}
}

// link is a proxy between two parts. Its toxic, the valve, is there from the start and does as the weather says.
// Toxics that are added to and removed from a proxy in use are toxiproxy's own way, but the proxy hangs for ever
// when a connection with bytes on the way dies meanwhile, and here many do.
type link struct {
	name  string
	proxy *toxiproxy.Proxy

	mu     sync.Mutex
	now    *weather
	closed chan struct{} // when the link is no longer needed
	once   sync.Once
}

// openLink starts a proxy from a free port of 127.0.0.1 to an address, in fair weather.
func openLink(name, to string, ports *ports) (*link, error) {
	toxics.Register(valveName, new(valve))
	l := &link{name: name, now: &weather{over: make(chan struct{})}, closed: make(chan struct{})}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	from, err := ports.free()
	if err != nil {
		return nil, err
	}
	l.proxy = toxiproxy.NewProxy(server, name, from, to)
	for _, dir := range []string{upstream, downstream} {
		w, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(
			fmt.Sprintf(`{"name": %[1]q, "type": %[2]q, "stream": %[1]q, "toxicity": 1}`, dir, valveName)))
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", name, err)
		}
		v, ok := w.Toxic.(*valve)
		if !ok {
			return nil, errors.New("toxiproxy made another toxic than it was asked for")
		}
		v.link, v.direction = l, dir
	}
	if err := l.proxy.Start(); err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return l, nil
}

// address is what is connected to instead of the other end.
func (l *link) address() string { return l.proxy.Listen }

// set changes the weather.
func (l *link) set(w weather) {
	w.over = make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.now.over)
	l.now = &w
}

func (l *link) weather() *weather {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// suffer carries out a fault of this link until its time is over or ctx ends.
func (l *link) suffer(ctx context.Context, f fault) error {
	switch {
	case f.Kind == cut && f.Refuse:
		l.proxy.Stop()
		rest(ctx, f.For)
		return l.open()
	case f.Kind == cut:
		l.set(weather{closes: true})
	case f.Kind == latency:
		l.set(weather{late: f.Latency})
	case f.Kind == halfClose:
		l.set(weather{swallow: f.Direction})
	default:
		return fmt.Errorf("a link has no fault %s", f.Kind)
	}
	rest(ctx, f.For)
	l.set(weather{})
	return nil
}

// open listens again. Somebody else may have taken the port, for a moment.
func (l *link) open() error {
	var err error
	for range 50 {
		if err = l.proxy.Start(); err == nil {
			return nil
		}
		select {
		case <-l.closed:
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("link %s: %w", l.name, err)
}

// close ends the link and every connection on it.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		l.proxy.Stop()
	})
}

// valveName is that of the valve among toxiproxy's toxics.
const valveName = "valve"

// valve is the toxic of a link, for one direction.
type valve struct {
	link      *link
	direction string
}

// GetBufferSize implements [toxics.BufferedToxic]. Bytes that are late wait here: without room for them a link that
// is late would be slow, too.
func (v *valve) GetBufferSize() int { return 1024 }

// Pipe implements [toxics.Toxic] for one connection.
func (v *valve) Pipe(stub *toxics.ToxicStub) {
	for {
		w := v.link.weather()
		if w.closes {
			hangUp(stub)
			return
		}
		if w.swallow == v.direction {
			if !v.swallow(stub, w) {
				return
			}
			continue
		}
		select {
		case <-stub.Interrupt:
			return
		case <-w.over:
		case c := <-stub.Input:
			if !v.pass(stub, c, w) {
				return
			}
		}
	}
}

// pass hands a chunk on, late if need be, and answers whether there can be more.
func (v *valve) pass(stub *toxics.ToxicStub, c *stream.StreamChunk, w *weather) bool {
	if c == nil {
		stub.Close()
		return false
	}
	if wait := time.Until(c.Timestamp.Add(w.late)); w.late > 0 && wait > 0 {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.over:
		case <-v.link.closed:
		}
		timer.Stop()
	}
	select {
	case stub.Output <- c:
		return true
	case <-v.link.closed: // whoever took it may be gone
		hangUp(stub)
		return false
	}
}

// swallow takes what comes and hands nothing on, not even the end, until the weather changes. A connection that
// lost bytes is closed then, because no network delivers what comes after a gap. It answers whether the connection
// lives on.
func (v *valve) swallow(stub *toxics.ToxicStub, w *weather) bool {
	for lost := false; ; {
		select {
		case <-stub.Interrupt:
			return false
		case <-v.link.closed:
			hangUp(stub)
			return false
		case <-w.over:
			if lost {
				hangUp(stub)
			}
			return !lost
		case c := <-stub.Input:
			if c != nil {
				lost = true
				continue
			}
			select {
			case <-w.over:
			case <-v.link.closed:
			}
			stub.Close()
			return false
		}
	}
}

// hangUp closes a connection, and takes what is still coming, so that the proxy's goroutines can end.
func hangUp(stub *toxics.ToxicStub) {
	stub.Close()
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				return
			}
		}
	}
}

// rest waits, no longer than ctx lives.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ports hands out ports of 127.0.0.1 below those that the system takes for connections, so that a server that is
// killed finds its own free when it is started again.
type ports struct{ next int }

const (
	firstPort = 15000
	lastPort  = 32000
)

// free answers an address on which nothing listens now.
func (p *ports) free() (string, error) {
	for range lastPort - firstPort {
		if p.next < firstPort || p.next > lastPort {
			p.next = firstPort
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.next})
		p.next++
		if err != nil {
			continue
		}
		address := l.Addr().String()
		if err := l.Close(); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		return address, nil
	}
	return "", fmt.Errorf("no port of 127.0.0.1 from %d to %d is free", firstPort, lastPort)
}
