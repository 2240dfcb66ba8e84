package fetch

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"example.com/trawl/pkg/crawl"
)

const (
	// What is asked for. deflate and zstd are undone too when a server sends
	// them unasked; deflate is ambiguous, zstd's window costs memory.
	acceptEncoding = "gzip, br"
	// Codings that are undone of one body. Two happen by mistake of a cache in
	// front of a server; more only in attacks.
	maxCodings = 2
	// RFC 8878 section 3.1.1.1.2 lets a decoder refuse windows beyond 8 MiB.
	zstdWindow = 8 << 20
	// A body that sniffing found not to be HTML is read so far, so that a small
	// one is complete and its connection kept, and the rest of a large one is
	// never transferred.
	sniffedBytes = 64 << 10
	// Buffers beyond this are left to the garbage collector, or one large page
	// would hold its memory for ever.
	pooledBytes = 1 << 20
)

// body is a decoded body. buf holds what is going to be parsed; n counts every
// decoded byte that was read.
type body struct {
	buf  []byte
	n    int64
	slot bool // it holds one of slots
}

// minBuffer holds most pages without growing.
const minBuffer = 32 << 10

var bodies = sync.Pool{New: func() any { return &body{buf: make([]byte, 0, minBuffer)} }}

func newBody() *body {
	b := bodies.Get().(*body)
	b.buf, b.n = b.buf[:0], 0
	return b
}

func (b *body) release() {
	if b.slot {
		<-slots
		b.slot = false
	}
	if cap(b.buf) <= pooledBytes {
		bodies.Put(b)
	}
}

// fill appends from r to buf until it holds at least n bytes, r ends (io.EOF)
// or fails.
func (b *body) fill(r io.Reader, n int) error {
	for len(b.buf) < n {
		if len(b.buf) == cap(b.buf) {
			// Doubling costs fewer copies than append's growth, and n bounds it: a body
			// at the limit must not cost several times the limit.
			grown := make([]byte, len(b.buf), max(min(2*cap(b.buf), n), minBuffer))
			b.buf = grown[:copy(grown[:len(b.buf)], b.buf)]
		}
		m, err := r.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+m]
		b.n += int64(m)
		if err != nil {
			return err
		}
	}
	return nil
}

// readBody takes the body of an answer: into x.body when it is read, else only
// its size. It decides what the body is and sets x.media, x.label and x.html.
func (x *exchange) readBody(res *http.Response) error {
	x.media, x.label = mediaType(res.Header["Content-Type"])
	limit := x.fetcher.opts.MaxBodyBytes
	codings, err := contentCodings(res.Header["Content-Encoding"])
	if err != nil {
		return err
	}
	raw := newRawReader(res.Body, codings, limit)
	x.compressed = len(codings) > 0
	var wire io.Reader = raw
	if windowed(codings) {
		packed, err := x.collect(raw)
		if err != nil {
			return err
		}
		defer packed.release()
		wire = bytes.NewReader(packed.buf)
	}
	r, release := undo(codings, wire, limit)
	defer release()

	declaredHTML := x.media == "text/html" || x.media == "application/xhtml+xml"
	cut := false
	if declaredHTML || x.media == "" {
		err = x.body.fill(r, sniffBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return x.bodyFault(raw, err)
		}
		if cut = !x.identify(declaredHTML); cut {
			x.text = x.req.Text && x.media != "" && isText(x.media)
			if cut = !x.text; cut {
				limit = max(sniffedBytes, x.body.n)
			}
		}
	} else if x.req.Text && isText(x.media) {
		if err = x.body.fill(r, sniffBytes); err != nil && !errors.Is(err, io.EOF) {
			return x.bodyFault(raw, err)
		}
		x.text = !looksBinary(x.body.buf, x.label)
	}
	switch {
	case errors.Is(err, io.EOF):
		// Complete already.
	case !cut && !x.compressed && res.ContentLength > limit:
		return x.tooLarge()
	case x.html || x.text:
		if n := res.ContentLength; !x.compressed && n > int64(cap(x.body.buf)) && n <= pooledBytes {
			x.body.buf = append(make([]byte, 0, n+1), x.body.buf...) // + 1: room to see io.EOF
		}
		err = x.body.fill(r, int(limit)+1)
	default:
		err = x.skim(r, limit+1-x.body.n)
	}
	switch {
	case cut && (err == nil || errors.Is(err, errDecodedLimit)):
		return nil // closing the body drops the connection
	case err == nil:
		return x.tooLarge()
	case !errors.Is(err, io.EOF):
		return x.bodyFault(raw, err)
	case x.body.n > limit && !cut:
		return x.tooLarge()
	}
	if raw.err != nil && !errors.Is(raw.err, io.EOF) {
		return x.bodyFault(raw, raw.err) // behind what is whole as far as the coding knows
	}
	x.digestBody()
	if x.compressed {
		// Behind the last coding's end there may be padding; reading it to the end
		// of the message keeps the connection.
		_, _ = io.CopyN(io.Discard, raw, 4<<10)
	}
	if (x.html || x.text) && len(x.body.buf) > smallPage {
		return x.takeSlot()
	}
	return nil
}

// identify finds out what the body is by its first bytes, and reports whether it is HTML.
func (x *exchange) identify(declaredHTML bool) bool {
	kind, html := sniff(x.body.buf, declaredHTML)
	x.html = html
	if !html {
		x.media, x.label = kind, ""
	} else if x.media == "" {
		x.media = kind
	}
	x.xhtml = x.media == "application/xhtml+xml"
	return html
}

func (x *exchange) digestBody() {
	switch {
	case x.body.n == 0:
	case x.hash != nil:
		x.digest = Digest(x.hash.Sum(nil)[:len(Digest{})])
	default:
		x.digest = digestOf(x.body.buf)
	}
}

// smallPage is what a page may have, in bytes, to be parsed without one of slots.
const smallPage = 64 << 10

// slots bounds the pages of any size, and the codings with a large window, that are
// worked at in this process at a time: that takes many times the memory of the page
// itself, and more at once than there are processors makes none of them faster. Whoever
// holds one does not wait for the network.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

// takeSlot waits for one of slots; the end of the fetch gives it back. What is waited for
// is this process, so that the wait does not count as the server's, nor end with its time.
func (x *exchange) takeSlot() error {
	if x.body.slot {
		return nil
	}
	begun := time.Now()
	defer func() { x.queued += time.Since(begun) }()
	select {
	case slots <- struct{}{}:
		x.body.slot = true
		return nil
	case <-x.gone:
		return context.Canceled
	}
}

// collect reads a body as it was sent, which is not decoded before it is complete: a
// server that takes its time must not hold a slot meanwhile. The caller releases what it
// returns.
func (x *exchange) collect(raw *rawReader) (*body, error) {
	b := newBody()
	err := b.fill(raw, int(raw.left)+1)
	if errors.Is(err, io.EOF) {
		err = x.takeSlot()
	} else {
		err = x.bodyFault(raw, err)
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

func digestOf(body []byte) Digest {
	sum := sha256.Sum256(body)
	return Digest(sum[:len(Digest{})])
}

// skim reads up to n bytes more of a body that is not parsed, for its size and
// digest. Like io.CopyN it returns io.EOF when there are fewer.
func (x *exchange) skim(r io.Reader, n int64) error {
	x.hash = sha256.New()
	x.hash.Write(x.body.buf)
	rest := io.LimitedReader{R: r, N: n}
	m, err := io.CopyBuffer(x.hash, &rest, x.body.buf[:cap(x.body.buf)])
	x.body.n += m
	if err == nil && rest.N > 0 {
		err = io.EOF
	}
	return err
}

func (x *exchange) tooLarge() error {
	return crawl.Faultf(crawl.CodeBodyTooLarge, "The page is larger than %d bytes.", x.fetcher.opts.MaxBodyBytes)
}

// bodyFault is what ended the reading of a body.
func (x *exchange) bodyFault(raw *rawReader, err error) error {
	if errors.Is(err, errDecodedLimit) {
		return x.tooLarge()
	}
	return decodeFault(x.what, raw, x.compressed, err)
}

// decodeFault tells a message that broke off from one that does not decode.
func decodeFault(what string, raw *rawReader, compressed bool, err error) error {
	switch {
	case raw.err != nil && !errors.Is(raw.err, io.EOF):
		return raw.err // the network's fault, whatever the decoder made of it
	case errors.Is(err, io.ErrUnexpectedEOF) || !compressed:
		return err
	}
	if f, ok := errors.AsType[*crawl.Fault](err); ok {
		return f
	}
	return &crawl.Fault{
		Code:    crawl.CodeContentEncoding,
		Message: "The " + what + " does not decode as its Content-Encoding says.",
		Err:     err,
	}
}

// rawReader remembers how the encoded body ended.
type rawReader struct {
	r    io.Reader
	left int64 // bytes that it may have yet; then it fails with errDecodedLimit
	err  error
}

// newRawReader returns a reader of a body that holds at most limit bytes beneath its
// codings. There are codings of nothing, of any length, and what cannot be compressed
// grows a little; without codings others see to the limit.
func newRawReader(r io.Reader, codings []string, limit int64) *rawReader {
	if len(codings) == 0 {
		return &rawReader{r: r, left: 1<<63 - 1}
	}
	return &rawReader{r: r, left: limit + limit/8 + minBuffer}
}

func (r *rawReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.r.Read(p)
	if r.left -= int64(n); r.left < 0 {
		err = errDecodedLimit
	}
	r.err = err
	return n, err
}

var errDecodedLimit = errors.New("fetch: decoded body is over the limit")

// limitReader fails, unlike io.LimitReader, when there is more than n bytes. It
// stands behind every coding: the inner of two may expand into something that
// the outer one swallows.
type limitReader struct {
	r io.Reader
	n int64
}

func (l *limitReader) Read(p []byte) (int, error) {
	if l.n < 0 {
		return 0, errDecodedLimit
	}
	if int64(len(p)) > l.n+1 {
		p = p[:l.n+1]
	}
	n, err := l.r.Read(p)
	if l.n -= int64(n); l.n < 0 {
		return n, errDecodedLimit
	}
	return n, err
}

// decoder returns a reader of what raw holds beneath the codings of the
// Content-Encoding lines. release must be called after the last read.
func decoder(lines []string, raw io.Reader, limit int64) (r io.Reader, release func(), err error) {
	codings, err := contentCodings(lines)
	if err != nil {
		return nil, nil, err
	}
	r, release = undo(codings, raw, limit)
	return r, release, nil
}

// contentCodings returns the codings of the Content-Encoding lines (RFC 9110 section
// 8.4), in the order in which they were applied.
func contentCodings(lines []string) ([]string, error) {
	var codings []string
	for _, line := range lines {
		for c := range strings.SplitSeq(line, ",") {
			switch c = strings.ToLower(strings.TrimSpace(c)); c {
			case "", "identity", "none", "utf-8", "utf8", "7bit", "8bit", "binary":
				// The last ones are no codings, but servers that mean a charset or a
				// transfer encoding of mail write them, and browsers show the page.
			case "x-gzip":
				codings = append(codings, "gzip")
			case "gzip", "br", "deflate", "zstd":
				codings = append(codings, c)
			default:
				return nil, crawl.Faultf(crawl.CodeContentEncoding,
					"The answer is encoded as %q, which is not supported.", clip(printable(c), 40))
			}
		}
	}
	if len(codings) > maxCodings {
		return nil, crawl.Faultf(crawl.CodeContentEncoding,
			"The answer is encoded %d times; at most %d are undone.", len(codings), maxCodings)
	}
	return codings, nil
}

// windowed reports whether undoing the codings takes a large window: brotli has up to
// 16 MiB (RFC 7932 section 9.1), zstd up to [zstdWindow], gzip and deflate 32 KiB.
func windowed(codings []string) bool {
	return slices.Contains(codings, "br") || slices.Contains(codings, "zstd")
}

// undo returns a reader of what raw holds beneath the codings, which are undone in
// reverse, with at most limit bytes behind each.
func undo(codings []string, raw io.Reader, limit int64) (r io.Reader, release func()) {
	r, release = raw, func() {}
	for _, coding := range slices.Backward(codings) {
		d := &decode{coding: coding, src: r}
		done := release
		r, release = &limitReader{d, limit}, func() { d.release(); done() }
	}
	return r, release
}

// decode undoes one coding. It opens on the first read, so that an empty body
// (of a 204, or of a server that adds the header to everything) is empty.
type decode struct {
	coding string
	src    io.Reader
	r      io.Reader
	free   func()
}

func (d *decode) Read(p []byte) (int, error) {
	if d.r == nil {
		if err := d.open(); err != nil {
			return 0, err
		}
	}
	return d.r.Read(p)
}

func (d *decode) release() {
	if d.free != nil {
		d.free()
	}
}

var (
	buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}
	gunzips = sync.Pool{New: func() any { return new(gzip.Reader) }}
	brotlis = sync.Pool{New: func() any { return brotli.NewReader(nil) }}
)

func (d *decode) open() error {
	in := buffers.Get().(*bufio.Reader)
	in.Reset(d.src)
	d.free = func() { in.Reset(nil); buffers.Put(in) }
	head, err := in.Peek(2)
	if len(head) == 0 {
		return err
	}
	free := d.free
	switch d.coding {
	case "gzip":
		z := gunzips.Get().(*gzip.Reader)
		d.free = func() { gunzips.Put(z); free() }
		d.r = &members{z: z, in: in}
	case "br":
		z := brotlis.Get().(*brotli.Reader)
		d.free = func() { brotlis.Put(z); free() }
		d.r, err = z, z.Reset(in)
		return err
	case "zstd":
		// Without concurrency there is no goroutine to stop.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return err
		}
		d.free = func() { z.Close(); free() }
		d.r = z
	case "deflate":
		// RFC 9110 means zlib, many servers send the bare stream. A zlib header
		// is recognised by its method and check bits, RFC 1950 section 2.2.
		if len(head) == 2 && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
			z, err := zlib.NewReader(in)
			if err != nil {
				return err
			}
			d.r = z
		} else {
			d.r = flate.NewReader(in)
		}
	}
	return nil
}

// members reads the members of a gzip file (RFC 1952 section 2.2) one by one.
// What follows the last complete member and is no member is ignored, as browsers
// do: some servers pad.
type members struct {
	z    *gzip.Reader
	in   *bufio.Reader
	open bool
	n    int // members begun
}

func (m *members) Read(p []byte) (int, error) {
	for {
		if !m.open {
			err := m.z.Reset(m.in)
			switch {
			case err == nil:
			case m.n > 0 && (errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF)):
				return 0, io.EOF
			default:
				return 0, err
			}
			m.z.Multistream(false)
			m.open = true
			m.n++
		}
		n, err := m.z.Read(p)
		if errors.Is(err, io.EOF) {
			m.open, err = false, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// printable keeps the visible ASCII of a header value, for messages.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s)
}
