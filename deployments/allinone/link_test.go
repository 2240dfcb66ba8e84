package allinone

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// What is written to a link waits for nobody, and arrives whole and in order.
func TestLink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		l := newLink(client)
		if err := l.SetDeadline(time.Now().Add(time.Second)); err != nil { // which is one of reads
			t.Fatal(err)
		}
		var want []byte
		for i := range 200 {
			piece := bytes.Repeat([]byte{byte(i)}, i*20)
			if n, err := l.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("%d of %d written, %v", n, len(piece), err)
			}
			want = append(want, piece...)
			clear(piece) // it is the writer's again
		}
		if _, err := l.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read of nothing: %v", err)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("not what was written: %v", err)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if _, err := l.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write after the close: %v", err)
		}
	})
}

// A link that the other side closes in the middle says so at the next read, and holds nothing.
func TestLinkBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // which ends only when the pump has
		client, server := net.Pipe()
		l := newLink(client)
		if _, err := l.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, server, 10); err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(make([]byte, 1)); err == nil {
			t.Error("a broken link gave something")
		}
	})
}
