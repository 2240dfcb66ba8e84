package main

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// echo is a server that sends back what it gets, and says so on a channel.
func echo(t *testing.T) (address string, got <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 16)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					select {
					case lines <- string(b[:n]):
					default: // the test does not look
					}
					if _, err := c.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

func linked(t *testing.T) (*link, <-chan string) {
	t.Helper()
	to, got := echo(t)
	l, err := openLink("a to b", to, &ports{next: firstPort + int(time.Now().UnixNano()%10_000)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l, got
}

func dial(t *testing.T, l *link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a word and wants it back.
func ask(t *testing.T, c net.Conn, word string) {
	t.Helper()
	if err := say(c, word); err != nil {
		t.Fatalf("%s: %v", word, err)
	}
}

func say(c net.Conn, word string) error {
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	return nil
}

// suffering carries out a fault until the test ends it, and returns when the link has it.
func suffering(t *testing.T, l *link, f fault) (end func()) {
	t.Helper()
	before := l.weather()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	f.For = time.Hour
	go func() { done <- l.suffer(ctx, f) }()
	if f.Refuse {
		crawltest.Eventually(t, time.Minute, "a refusal", func() bool {
			c, err := net.Dial("tcp", l.address())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	} else {
		<-before.over
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestLinkIsLate(t *testing.T) {
	t.Parallel()
	l, _ := linked(t)
	c := dial(t, l)
	ask(t, c, "before")
	const late = 100 * time.Millisecond
	end := suffering(t, l, fault{Kind: latency, Latency: late})
	begun := time.Now()
	ask(t, c, "late")
	if took := time.Since(begun); took < 2*late {
		t.Errorf("there and back took %v, want at least %v", took, 2*late)
	}
	end()
	ask(t, c, "after")
}

// TestLinkSwallows: one direction is lost and the other lives, and a connection with a gap is closed in the end.
func TestLinkSwallows(t *testing.T) {
	t.Parallel()
	for _, direction := range []string{upstream, downstream} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			l, got := linked(t)
			used, idle := dial(t, l), dial(t, l)
			ask(t, used, "a")
			ask(t, idle, "b")
			<-got
			<-got
			end := suffering(t, l, fault{Kind: halfClose, Direction: direction})
			if _, err := io.WriteString(used, "lost"); err != nil {
				t.Fatal(err)
			}
			if direction == downstream {
				if word := <-got; word != "lost" {
					t.Errorf("the server got %q", word)
				}
			}
			answered := make(chan error, 1)
			go func() {
				_, err := used.Read(make([]byte, 8))
				answered <- err
			}()
			select {
			case err := <-answered:
				t.Fatalf("there is an answer, or an end: %v", err)
			case word := <-got:
				t.Fatalf("the server got %q", word)
			case <-time.After(100 * time.Millisecond): // as long as nothing can be waited for
			}
			end()
			if err := <-answered; err == nil {
				t.Error("a connection that lost bytes goes on")
			}
			ask(t, idle, "still")
			ask(t, dial(t, l), "new")
		})
	}
}

// TestLinkCuts: the connections are closed, new ones are refused or closed, and all is well again afterwards.
func TestLinkCuts(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{true, false} {
		l, _ := linked(t)
		old, idle := dial(t, l), dial(t, l)
		ask(t, old, "before")
		end := suffering(t, l, fault{Kind: cut, Refuse: refuse})
		for _, c := range []net.Conn{old, idle} {
			if err := say(c, "cut"); err == nil {
				t.Errorf("refuse %v: a connection lives on", refuse)
			}
		}
		if c, err := net.Dial("tcp", l.address()); err == nil {
			if refuse {
				t.Error("a connection is accepted")
			} else if say(c, "cut") == nil {
				t.Error("a new connection lives")
			}
			c.Close()
		}
		end()
		ask(t, dial(t, l), "after")
	}
}

// TestLinkEnds: links whose ends die with bytes on the way can be changed and closed; TestMain sees what is left.
func TestLinkEnds(t *testing.T) {
	t.Parallel()
	l, _ := linked(t)
	for range 20 {
		c := dial(t, l)
		end := suffering(t, l, fault{Kind: latency, Latency: time.Millisecond})
		for range 50 {
			if _, err := io.WriteString(c, "0123456789abcdef"); err != nil {
				break
			}
		}
		c.Close()
		end()
	}
	ask(t, dial(t, l), "after")
}

func TestPortsAreFree(t *testing.T) {
	t.Parallel()
	p := &ports{next: lastPort}
	seen := map[string]bool{}
	for range 20 {
		address, err := p.free()
		if err != nil || seen[address] {
			t.Fatalf("%s, seen before: %v, %v", address, seen[address], err)
		}
		seen[address] = true
	}
}
