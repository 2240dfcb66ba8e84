package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// resultPage is how many records a download reads from the store at a time: the
// most that it holds of a job of any size.
const resultPage = 500

// The formats of a result, and the extensions of the files that they make.
const (
	formatJSON   = "json"
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
)

type resultInput struct {
	ID     string `path:"id" doc:"Identity of the job."`
	Format string `query:"format" enum:"json,ndjson,csv" doc:"json (the default): the status with records and errors in it, as arrays. ndjson: the records alone, one a line. csv: the records alone as a table (RFC 4180, UTF-8, with a header row), null as an empty cell. A text cell that a spreadsheet might take for a formula has an apostrophe before it: one that begins with a tab or a line break, or, after blanks, control characters and apostrophes, with = + - @ or a wide or small form of these. Take one apostrophe off such a cell to have the text again. Numbers, json and ndjson are never changed."`
}

type resultOutput struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        func(huma.Context)
}

// result streams the whole result of an ended job. Everything that can be
// refused is, before the first byte; what fails after it breaks the connection,
// so that half a document is never taken for a whole one.
func (s *Server) result(ctx context.Context, x *exchange, in *resultInput) (*resultOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	switch in.Format {
	case "", formatJSON, formatNDJSON, formatCSV:
	default:
		p.add("format", "enum", "Give json, ndjson or csv.")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	j, err := s.jobs.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !j.State.Terminal() {
		return nil, &crawl.Fault{
			Code: crawl.CodeJobNotTerminal, JobID: j.ID,
			Message: "The job has not ended, so its result is not whole. " +
				"Wait for the end, cancel it, or read /records.",
		}
	}
	first, err := s.jobs.Records(ctx, ref, 0, resultPage)
	if err != nil {
		return nil, err
	}

	d := download{s: s, ref: ref, records: first}
	out := &resultOutput{}
	var write func(flush func() error) error
	extension := in.Format
	switch in.Format {
	case formatNDJSON:
		out.ContentType = "application/x-ndjson"
		write = func(flush func() error) error { return d.writeRecords(ctx, d.inJSON(""), flush) }
	case formatCSV:
		out.ContentType = csvType
		write = func(flush func() error) error { return d.table(ctx, flush) }
	default:
		out.ContentType, extension = "application/json", formatJSON
		head := statusOf(&j)
		write = func(flush func() error) error { return d.document(ctx, &head, flush) }
	}
	// The id has a form that needs no quoting: see crawl.ValidJobID.
	out.Disposition = fmt.Sprintf("attachment; filename=%q", j.ID+"."+extension)
	out.Body = func(huma.Context) { d.run(x, write) }
	if x.c.Request.Method == http.MethodHead {
		out.Body = func(huma.Context) {} // a whole job would be read for nobody
	}
	return out, nil
}

// download is one result on its way.
type download struct {
	s       *Server
	ref     crawl.JobRef
	records store.RecordPage // the first page, read before the answer began
	w       *bufio.Writer
	enc     *json.Encoder
}

// run answers what write writes. It is given what sends on what is written so far.
func (d *download) run(x *exchange, write func(flush func() error) error) {
	rc := http.NewResponseController(x.c.Writer)
	d.w = bufio.NewWriterSize(x.c.Writer, 32<<10)
	d.enc = json.NewEncoder(d.w)
	d.enc.SetEscapeHTML(false)

	flush := func() error {
		d.s.extend(x.c) // for every page: what is slow but reads is served to the end
		if err := d.w.Flush(); err != nil {
			return err
		}
		return rc.Flush()
	}
	err := write(flush)
	if err == nil {
		err = flush()
	}
	if err != nil {
		_ = x.fail(err) // for the log alone: the answer has begun
		panic(http.ErrAbortHandler)
	}
}

// resultHead is a status without the number of records, whose name the records
// themselves have in this document.
type resultHead struct {
	*status
	Records *struct{} `json:"records,omitempty"`
}

func (d *download) document(ctx context.Context, head *status, flush func() error) error {
	open, err := json.Marshal(resultHead{status: head})
	if err != nil {
		return err
	}
	_, _ = d.w.Write(bytes.TrimSuffix(open, []byte("}"))) // its error comes back at the next flush
	_, _ = d.w.WriteString(`,"records":[`)
	if err := d.writeRecords(ctx, d.inJSON(","), flush); err != nil {
		return err
	}
	_, _ = d.w.WriteString(`],"errors":[`)
	if err := d.writeFailures(ctx, flush); err != nil {
		return err
	}
	_, err = d.w.WriteString("]}\n")
	return err
}

// inJSON returns what writes one record as JSON, each on its line.
func (d *download) inJSON(separator string) func(*record) error {
	n := 0
	return func(r *record) error { return d.item(&n, separator, r) }
}

// writeRecords hands each record to write, with one page of them in memory at a time.
func (d *download) writeRecords(ctx context.Context, write func(*record) error, flush func() error) error {
	found := d.records
	for {
		for i := range found.Records {
			r := recordOf(&found.Records[i])
			if err := write(&r); err != nil {
				return err
			}
		}
		if !found.More {
			return nil
		}
		err := flush()
		if err != nil {
			return err
		}
		if found, err = d.s.jobs.Records(ctx, d.ref, found.Next, resultPage); err != nil {
			return err
		}
	}
}

func (d *download) writeFailures(ctx context.Context, flush func() error) error {
	for after, n := int64(0), 0; ; {
		found, err := d.s.jobs.Failures(ctx, d.ref, after, resultPage)
		if err != nil {
			return err
		}
		for i := range found.Failures {
			if err := d.item(&n, ",", failureOf(&found.Failures[i])); err != nil {
				return err
			}
		}
		if !found.More {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		after = found.Next
	}
}

func (d *download) item(n *int, separator string, v any) error {
	if *n++; *n > 1 {
		_, _ = d.w.WriteString(separator)
	}
	return d.enc.Encode(v)
}
