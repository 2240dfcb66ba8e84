package allinone

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often keys are looked through for those whose time is over. Nothing but
// memory hangs on it: what must end in time ends by the store's own clock.
const tick = time.Second

// memory is a store in this process. It listens on loopback behind a password of its
// own, for other users of the machine reach that too.
type memory struct {
	server   *miniredis.Miniredis
	password string
	quit     chan struct{}
	done     sync.WaitGroup
}

func startMemory() (*memory, error) {
	m := &memory{server: miniredis.NewMiniRedis(), password: rand.Text(), quit: make(chan struct{})}
	m.server.RequireAuth(m.password)
	if err := m.server.Start(); err != nil {
		return nil, fmt.Errorf("start the store in memory: %w", err)
	}
	m.done.Go(m.age)
	return m, nil
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

func (m *memory) url() string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", m.password), Host: m.server.Addr()}
	return u.String()
}

// stop ends the server and forgets everything.
func (m *memory) stop() {
	close(m.quit)
	m.done.Wait()
	m.server.Close()
}
