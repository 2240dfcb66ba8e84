package httpapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// An export is made of three parts, which know nothing of each other:
//
//	t := newTable(&p, in.Format, in.Columns, tableOf[record]{...}) // which columns; faults go to p
//	return s.export(x, name, in.Format, func(out *sink) error {    // the answer and its headers
//		return writeRows(out, in.Format, t, next)                  // json, ndjson or csv, page by page
//	}), nil
//
// next is a [source]: it answers one page of rows after the other, and is called when the
// page before it is on its way. Whatever can be refused must be before export is called,
// the first page read included: what fails later breaks the connection.

// The formats of an export, and the extensions of the files that they make.
const (
	formatJSON   = "json"
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
)

// exportPage is how many rows an export reads from the store at a time: the most that it
// holds of an export of any size.
const exportPage = 500

// exportOutput is an answer of unknown length.
type exportOutput struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        func(huma.Context)
}

// exportFormat reads the parameter format; json is the default.
func (p *params) exportFormat(s string) string {
	switch s {
	case "":
		return formatJSON
	case formatJSON, formatNDJSON, formatCSV:
	default:
		p.add("format", "enum", "Give json, ndjson or csv.")
	}
	return s
}

// export answers what write writes, as a file of the given name and format. The name has a
// form that needs no quoting, as that of a job or of a collection.
//
// What fails on the way breaks the connection, so that half a document is never taken for a
// whole one.
func (s *Server) export(x *exchange, name, format string, write func(*sink) error) *exportOutput {
	out := &exportOutput{
		ContentType: map[string]string{
			formatJSON: "application/json", formatNDJSON: "application/x-ndjson", formatCSV: csvType,
		}[format],
		Disposition: fmt.Sprintf("attachment; filename=%q", name+"."+format),
	}
	if x.c.Request.Method == http.MethodHead {
		out.Body = func(huma.Context) {} // all of it would be read for nobody
		return out
	}
	out.Body = func(huma.Context) {
		k := s.newSink(x)
		err := write(k)
		if err == nil {
			err = k.flush()
		}
		if err != nil {
			_ = x.fail(err) // for the log alone: the answer has begun
			panic(http.ErrAbortHandler)
		}
	}
	return out
}

// sink is where an export is written. What a write of w fails with comes back at the next flush.
type sink struct {
	w    *bufio.Writer
	enc  *json.Encoder // writes to w
	send func() error
}

func (s *Server) newSink(x *exchange) *sink {
	rc := http.NewResponseController(x.c.Writer)
	k := &sink{w: bufio.NewWriterSize(x.c.Writer, 32<<10)}
	k.enc = json.NewEncoder(k.w)
	k.enc.SetEscapeHTML(false)
	k.send = func() error {
		s.extend(x.c) // for every page: what is slow but reads is served to the end
		if err := k.w.Flush(); err != nil {
			return err
		}
		return rc.Flush()
	}
	return k
}

// flush sends on what is written so far.
func (k *sink) flush() error { return k.send() }

// source answers the next page of the rows of an export, and whether there are more. The rows
// are used before it is called again.
type source[R any] func() (rows []R, more bool, err error)

// writeRows writes all rows of next: as a JSON array, as lines, or as the table t, which the
// other formats do without.
func writeRows[R any](out *sink, format string, t *table[R], next source[R]) error {
	switch format {
	case formatCSV:
		return t.write(out, next)
	case formatNDJSON:
		return writeEach(out, next, inJSON[R](out, ""))
	}
	_ = out.w.WriteByte('[')
	if err := writeEach(out, next, inJSON[R](out, ",")); err != nil {
		return err
	}
	_, err := out.w.WriteString("]\n")
	return err
}

// inJSON returns what writes one row as JSON, each on its line.
func inJSON[R any](out *sink, separator string) func(*R) error {
	first := true
	return func(r *R) error {
		if !first {
			_, _ = out.w.WriteString(separator)
		}
		first = false
		return out.enc.Encode(r)
	}
}

// writeEach hands each row of next to write, with one page of them in memory at a time.
func writeEach[R any](out *sink, next source[R], write func(*R) error) error {
	for {
		rows, more, err := next()
		if err != nil {
			return err
		}
		for i := range rows {
			if err := write(&rows[i]); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}
