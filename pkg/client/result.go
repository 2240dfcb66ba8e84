package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Format is one of the forms of a whole result.
type Format string

// The formats: the status with records and errors in it; the records alone, one a line; or
// the records alone as a table with a header row (RFC 4180), in which the service puts an
// apostrophe before texts that a spreadsheet might run as a formula.
const (
	JSON   Format = "json"
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
)

// DownloadOption changes what is downloaded.
type DownloadOption func(*downloading)

type downloading struct {
	columns []string
	after   int64
}

// Columns chooses the columns of a [CSV] and their order, such as "url", "change" or
// "fields.price". By default there are all that have one value, and all fields.
func Columns(names ...string) DownloadOption { return func(d *downloading) { d.columns = names } }

// After leaves out a result's records up to the one with this [Record.Seq]. Of items
// [ItemsQuery.After] is the same.
func After(seq int64) DownloadOption { return func(d *downloading) { d.after = seq } }

// Result downloads the whole result of an ended job. The caller closes it. Neither its
// size nor its time, once it has begun, is bounded but by ctx, which must last until all
// is read. A download that was cut ends in an error that is [io.ErrUnexpectedEOF], never
// in io.EOF; it is not taken up again, as [Client.StreamRecords] is.
func (c *Client) Result(ctx context.Context, id string, format Format, options ...DownloadOption) (io.ReadCloser, error) {
	q, err := ofJob("read result of", http.MethodGet, id, "/result")
	if err != nil {
		return nil, err
	}
	q.query = url.Values{}
	return c.download(ctx, q, format, options)
}

// StreamRecords reads the records of an ended job as one stream, in fewer requests than
// [Client.Records] and with one record in memory at a time. It begins behind the record with
// the [Record.Seq] after; 0 is the beginning. A stream that breaks is taken up behind the last
// record that came, as often as calls are repeated, see [WithRetries]. An error is the last that
// it yields. Each range over it begins anew.
func (c *Client) StreamRecords(ctx context.Context, id string, after int64) iter.Seq2[Record, error] {
	call := aboutJob("read result of", id)
	return stream(ctx, c, call, bySeq, after, func(ctx context.Context, after int64) (io.ReadCloser, error) {
		return c.Result(ctx, id, NDJSON, After(after))
	})
}

// download makes a call that is answered by a document of any size.
func (c *Client) download(ctx context.Context, q *request, format Format, options []DownloadOption) (io.ReadCloser, error) {
	var o downloading
	for _, option := range options {
		option(&o)
	}
	if format != "" {
		q.query.Set("format", string(format))
	}
	if len(o.columns) > 0 {
		q.query.Set("columns", strings.Join(o.columns, ","))
	}
	if o.after != 0 {
		q.query.Set("after", strconv.FormatInt(o.after, 10))
	}
	q.stream = true
	var d io.ReadCloser
	err := c.do(ctx, q, func(resp *http.Response) error {
		if err := c.downloadable(resp, format); err != nil {
			return err
		}
		d = &download{body: resp.Body, call: q.call}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// downloadable says why an answer of success is no result of the format.
func (c *Client) downloadable(resp *http.Response, format Format) error {
	// A format that is not here is one of a newer service, which knows its type.
	want := map[Format]string{"": jsonType, JSON: jsonType, NDJSON: ndjsonType, CSV: "text/csv"}[format]
	if got := media(resp); want != "" && got != want {
		start, err := io.ReadAll(io.LimitReader(resp.Body, maxCleaned))
		if err != nil {
			start = nil // what is wrong is known without it
		}
		return c.foreign(resp, start, "it should be "+want)
	}
	// An answer that ends where the connection does ends the same way when it is cut.
	// What was compressed has a checksum at its end.
	chunked := len(resp.TransferEncoding) > 0
	if resp.ProtoMajor == 1 && resp.ContentLength < 0 && !chunked && !resp.Uncompressed {
		return c.foreign(resp, nil, "it does not say where it ends, so that half of it would look whole; "+
			"a proxy in between speaks HTTP/1.0")
	}
	return nil
}

// download is a document on its way. It tells its end from a cut.
type download struct {
	body io.ReadCloser
	call string
	n    int64 // bytes read
	err  error // of the read that ended it
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.body.Read(p)
	d.n += int64(n)
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // as io.Reader says; a wrapped one is a cut
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%s: cut after %d bytes: %w", d.call, d.n, err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%s: ended after %d bytes: %w", d.call, d.n, err)
	default:
		err = fmt.Errorf("%s: cut after %d bytes: %w: %w", d.call, d.n, io.ErrUnexpectedEOF, err)
	}
	d.err = err
	return n, err
}

// Close implements io.Closer. What was not read is not waited for.
func (d *download) Close() error { return d.body.Close() }
