package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// maxLine bounds one line of a stream, in bytes.
const maxLine = maxAnswer

// firstLine is the memory that a stream begins with for a line, in bytes: it grows with them.
const firstLine = 64 << 10

// errStalled is why a stream is given up from which nothing comes.
var errStalled = fmt.Errorf("nothing came for %v", tryTimeout)

// stream yields the lines of a document of NDJSON that open opens behind the entry with the
// number after. One that breaks is opened anew behind the last entry that came; when that
// fails again and again without an entry in between, its error is the last that is yielded.
func stream[T any](
	ctx context.Context, c *Client, call string, of order[T], after int64,
	open func(ctx context.Context, after int64) (io.ReadCloser, error),
) iter.Seq2[T, error] {
	entries := func(yield func(T, error) bool) {
		var zero T
		last := after
		for try := 1; ; try++ {
			more, cut := part(ctx, last, open, func(v *T) bool {
				last, try = of.number(v), 1
				return yield(*v, nil)
			})
			switch {
			case !more || cut == nil:
				return
			case ctx.Err() != nil || !errors.Is(cut, io.ErrUnexpectedEOF) || try > c.retries:
				yield(zero, cut)
				return
			}
			pause(ctx, jitter(try))
		}
	}
	return of.keep(call, after, entries)
}

// part yields the entries of a stream until it ends or breaks, which is the error. It is
// false when no more is wanted.
func part[T any](
	ctx context.Context, after int64, open func(context.Context, int64) (io.ReadCloser, error), yield func(*T) bool,
) (more bool, cut error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	body, err := open(ctx, after)
	if err != nil {
		return true, err
	}
	defer func() { _ = body.Close() }() // what was needed of it is read
	call := ""
	if d, ok := body.(*download); ok {
		call = d.call
	}
	lines := bufio.NewScanner(&attended{body: body, giveUp: giveUp})
	lines.Buffer(make([]byte, firstLine), maxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			begins := string(lines.Bytes()[:min(len(lines.Bytes()), maxCleaned)])
			return true, fmt.Errorf("%s: a line is no entry: %s; it begins with %q",
				call, printable(err.Error()), beginning(printable(begins)))
		}
		if !yield(&v) {
			return false, nil
		}
	}
	err = lines.Err()
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		err = fmt.Errorf("%s: %w: %w", call, errStalled, io.ErrUnexpectedEOF)
	case errors.Is(err, bufio.ErrTooLong):
		err = fmt.Errorf("%s: a line has more than %d MiB", call, maxLine>>20)
	case errors.Is(err, errNoLineEnd):
		err = fmt.Errorf("%s: %w: %w", call, err, io.ErrUnexpectedEOF)
	}
	return true, err
}

// errNoLineEnd is what is wrong with a stream that ends in the middle of a line.
var errNoLineEnd = errors.New("it ends in the middle of a line")

// wholeLines is a split function for lines with an end: the rest of what was cut is no line,
// although it may look like one.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, errNoLineEnd
	}
	return 0, nil, nil
}

// attended gives up a body from which nothing comes while it is read. The time that its
// reader takes does not count.
type attended struct {
	body   io.Reader
	giveUp context.CancelCauseFunc
}

// Read implements io.Reader.
func (a *attended) Read(p []byte) (int, error) {
	timer := time.AfterFunc(tryTimeout, func() { a.giveUp(errStalled) })
	defer timer.Stop()
	return a.body.Read(p)
}

// order is what the entries of a list are numbered by.
type order[T any] struct {
	entry  string // its name in errors
	number func(*T) int64
}

var (
	bySeq = order[Record]{"record", func(r *Record) int64 { return r.Seq }}
	byN   = order[CollectionItem]{"item", func(i *CollectionItem) int64 { return i.N }}
)

// keep yields entries whose numbers must rise from after on: a service that does otherwise
// would be read without end, or give one twice.
func (o order[T]) keep(call string, after int64, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		last := after
		for v, err := range all {
			n := o.number(&v)
			if err == nil && n <= last {
				var zero T
				yield(zero, fmt.Errorf("%s: %s %d comes behind %s %d; %s", call, o.entry, n, o.entry, last, report))
				return
			}
			last = n
			if !yield(v, err) {
				return
			}
		}
	}
}
