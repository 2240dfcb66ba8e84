package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout bounds the start of a process: it takes 100 ms, and seconds on a machine that is busy or while
// Redis, which it asks, is away.
const startTimeout = 60 * time.Second

// errEnded is that of a process that is not running.
var errEnded = errors.New("the process is not running")

// process is a program that is killed, stopped and started again. What it writes goes to a file that all its lives
// share.
type process struct {
	name    string
	path    string
	args    []string
	env     []string
	log     string // file
	healthy func(context.Context) error
	// lost is told when the process ends by itself after it was healthy.
	lost func(*process, *os.ProcessState)
	// turn is held by who starts, stops or ends the process.
	turn sync.Mutex

	mu   sync.Mutex
	life *life // nil before the first start
}

// life is one run of a process.
type life struct {
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
	asked bool          // to end; under the mutex of the process
	ready bool          // it has answered; likewise
}

// environment is that of every process: this one's without what would be a setting of Trawl, of its traces or of
// a supervisor of this one.
func environment(settings ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TRAWL_") && !strings.HasPrefix(kv, "OTEL_") &&
			!strings.HasPrefix(kv, "NOTIFY_SOCKET=") && !strings.HasPrefix(kv, "WATCHDOG_") {
			env = append(env, kv)
		}
	}
	return append(env, settings...)
}

// start starts the process and returns when it is healthy.
func (p *process) start(ctx context.Context) error {
	l, err := p.launch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = p.healthy(ctx); err == nil {
			p.mu.Lock()
			l.ready = true
			p.mu.Unlock()
			select {
			case <-l.done: // perhaps before it was known to be ready, so that nobody was told
				return fmt.Errorf("%s ended when it was started (%v); see %s", p.name, l.cmd.ProcessState, p.log)
			default:
				return nil
			}
		}
		select {
		case <-l.done:
			return fmt.Errorf("%s ended when it was started (%v); see %s", p.name, l.cmd.ProcessState, p.log)
		case <-ctx.Done():
			return fmt.Errorf("%s was started and is not healthy: %w; see %s", p.name, errors.Join(err, ctx.Err()), p.log)
		case <-tick.C:
		}
	}
}

func (p *process) launch() (*life, error) {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer func() { _ = out.Close() }()     // the process has its own
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // it is ended by this type, which knows whether it was asked to
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = out, out, p.env, filepath.Dir(p.log)
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	l := &life{cmd: cmd, done: make(chan struct{})}
	p.mu.Lock()
	p.life = l
	p.mu.Unlock()
	go p.wait(l)
	return l, nil
}

func (p *process) wait(l *life) {
	_ = l.cmd.Wait() // how it ended is in its state
	p.mu.Lock()
	alarming := l.ready && !l.asked
	p.mu.Unlock()
	close(l.done)
	if alarming {
		p.lost(p, l.cmd.ProcessState)
	}
}

// running answers the life that is healthy now, if there is one.
func (p *process) running() (*life, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil || !p.life.ready || p.life.asked {
		return nil, errEnded
	}
	select {
	case <-p.life.done:
		return nil, errEnded
	default:
		return p.life, nil
	}
}

// revive starts the process if it does not run, and again until it does or ctx ends: one that is started while Redis
// is away may end, and a supervisor would start it again.
func (p *process) revive(ctx context.Context) error {
	for {
		if _, err := p.running(); err == nil {
			return nil
		}
		err := p.start(ctx)
		if err == nil {
			return nil
		}
		if kill := p.kill(); kill != nil || ctx.Err() != nil {
			return errors.Join(err, kill)
		}
		rest(ctx, 200*time.Millisecond)
	}
}

// signal sends sig to a process that is running.
func (p *process) signal(sig os.Signal) (*life, error) {
	l, err := p.running()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return l, l.signal(sig)
}

func (l *life) signal(sig os.Signal) error {
	if err := l.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// ask asks the process to end by sig, and answers its life; nil when it never had one.
func (p *process) ask(sig os.Signal) (*life, error) {
	p.mu.Lock()
	l := p.life
	if l != nil {
		l.asked = true
	}
	p.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	return l, l.signal(sig)
}

// end asks the process to end by sig, and returns its state when it has, or an error when ctx ends first.
func (p *process) end(ctx context.Context, sig os.Signal) (*os.ProcessState, error) {
	l, err := p.ask(sig)
	if l == nil || err != nil {
		return nil, err
	}
	select {
	case <-l.done:
		return l.cmd.ProcessState, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s has not ended: %w", p.name, ctx.Err())
	}
}

// kill ends the process at once.
func (p *process) kill() error {
	l, err := p.ask(syscall.SIGKILL)
	if l == nil || err != nil {
		return err
	}
	<-l.done
	return nil
}
