package allinone

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often keys are looked through for those whose time is over. Nothing but
// memory hangs on it: what must end in time ends by the store's own clock.
const tick = time.Second

// memoryURL stands for the store in memory where a URL of Redis is asked for. Its host is
// not looked up: [memory.dial] opens the connections.
const memoryURL = "redis://memory"

// memory is a store in this process. It listens nowhere, and so needs no password: a
// miniredis takes what it is sent on trust, and five bytes of any user of the machine,
// sent before an AUTH, would end the process.
type memory struct {
	server *miniredis.Miniredis
	quit   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

func startMemory() *memory {
	m := &memory{server: miniredis.NewMiniRedis(), quit: make(chan struct{})}
	m.done.Go(m.age)
	return m
}

// dial opens a connection; it is a Dial of redisconn.Options. A store that was stopped
// refuses, for miniredis would begin again.
func (m *memory) dial(context.Context, string, string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return nil, errors.New("the store in memory has stopped")
	}
	conn, err := m.server.Dial()
	if err != nil {
		return nil, err
	}
	return newLink(conn), nil
}

// age lets keys expire. miniredis could do it at every command, but then sorts all keys
// each time: a job of 100,000 pages would take minutes more.
func (m *memory) age() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-m.quit:
			return
		case now := <-ticker.C:
			m.server.FastForward(now.Sub(last))
			last = now
		}
	}
}

// stop ends the server and forgets everything.
func (m *memory) stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	close(m.quit)
	m.done.Wait()
	m.server.Close()
}
