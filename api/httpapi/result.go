package httpapi

import (
	"bytes"
	"context"
	"encoding/json"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

type resultInput struct {
	ID      string `path:"id" doc:"Identity of the job."`
	Format  string `query:"format" enum:"json,ndjson,csv" doc:"json (the default): the status with records and errors in it, as arrays. ndjson: the records alone, one a line. csv: the records alone as a table (RFC 4180, UTF-8, with a header row), null as an empty cell, a list or an object as JSON. A text cell that a spreadsheet might take for a formula has an apostrophe before it: one that begins with a tab or a line break, or, after blanks, control characters and apostrophes, with = + - @ or a wide or small form of these. Take one apostrophe off such a cell to have the text again. Numbers, json and ndjson are never changed."`
	Columns string `query:"columns" example:"source_url,title,fields.price" doc:"The columns of a csv, in this order: names of a record (also fields, notes, markdown, text, html, links and metadata, which stand in only when named) and fields.NAME for a field of the job, joined by commas. Default: all that have one value, then a column for each field of the job."`
	After   string `query:"after" doc:"Goes on behind the record with this seq, after a download that broke off: whatever the format, only records behind it are given. With json the status and errors are whole each time."`
	Cursor  string `query:"cursor" doc:"As after, by a next_cursor of /records."`
}

// result streams the whole result of an ended job.
func (s *Server) result(ctx context.Context, x *exchange, in *resultInput) (*exportOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	format, after := p.exportFormat(in.Format), p.number("after", in.After, 0, 0, 1<<53)
	if position := p.cursor(cursorRecords, in.Cursor); in.Cursor != "" {
		after = position
		if in.After != "" {
			p.add("cursor", "exclusive", "Give only one of after and cursor.")
		}
	}
	j, err := s.jobs.Job(ctx, ref)
	if err != nil {
		return nil, err
	}
	t := newTable(&p, format, in.Columns, tableOf[record]{names: fieldNames(j.Spec), values: valuesOf})
	if err := p.err(); err != nil {
		return nil, err
	}
	if !j.State.Terminal() {
		return nil, &crawl.Fault{
			Code: crawl.CodeJobNotTerminal, JobID: j.ID,
			Message: "The job has not ended, so its result is not whole. " +
				"Wait for the end, cancel it, or read /records.",
		}
	}
	first, err := s.jobs.Records(ctx, ref, after, exportPage)
	if err != nil {
		return nil, err
	}
	records := s.recordsBehind(ctx, ref, first)
	return s.export(x, j.ID, format, func(out *sink) error {
		if format == formatJSON {
			head := statusOf(&j)
			return s.resultDocument(ctx, out, ref, &head, records)
		}
		return writeRows(out, format, t, records)
	}), nil
}

// fieldNames returns the names of all fields of a stored spec, those of the page first, each
// once: what cannot be read has none.
func fieldNames(spec json.RawMessage) []string {
	var of struct {
		Fields crawl.Fields `json:"fields"`
		Items  *crawl.Items `json:"items"`
	}
	if err := json.Unmarshal(spec, &of); err != nil {
		return nil
	}
	all := of.Fields
	if of.Items != nil {
		all = append(all, of.Items.Fields...)
	}
	names, seen := make([]string, 0, len(all)), map[string]bool{}
	for _, f := range all {
		if !seen[f.Name] {
			names, seen[f.Name] = append(names, f.Name), true
		}
	}
	return names
}

func valuesOf(r *record) json.RawMessage { return json.RawMessage(r.Fields) }

// recordsBehind returns the records of a page that was read, and of those behind it.
func (s *Server) recordsBehind(ctx context.Context, ref crawl.JobRef, first store.RecordPage) source[record] {
	found, begun := first, false
	var rows []record
	return func() ([]record, bool, error) {
		if begun {
			var err error
			if found, err = s.jobs.Records(ctx, ref, found.Next, exportPage); err != nil {
				return nil, false, err
			}
		}
		begun, rows = true, rows[:0]
		for i := range found.Records {
			rows = append(rows, recordOf(&found.Records[i]))
		}
		found.Records = nil // their texts are the rows' now
		return rows, found.More, nil
	}
}

// failuresOf returns the failures of a job.
func (s *Server) failuresOf(ctx context.Context, ref crawl.JobRef) source[failure] {
	after := int64(0)
	return func() ([]failure, bool, error) {
		found, err := s.jobs.Failures(ctx, ref, after, exportPage)
		if err != nil {
			return nil, false, err
		}
		rows := make([]failure, len(found.Failures))
		for i := range found.Failures {
			rows[i] = failureOf(&found.Failures[i])
		}
		after = found.Next
		return rows, found.More, nil
	}
}

// resultHead is a status without the number of records, whose name the records
// themselves have in this document.
type resultHead struct {
	*status
	Records *struct{} `json:"records,omitempty"`
}

// resultDocument writes the status with records and errors in it.
func (s *Server) resultDocument(
	ctx context.Context, out *sink, ref crawl.JobRef, head *status, records source[record],
) error {
	open, err := json.Marshal(resultHead{status: head})
	if err != nil {
		return err
	}
	_, _ = out.w.Write(bytes.TrimSuffix(open, []byte("}"))) // its error comes back at the next flush
	_, _ = out.w.WriteString(`,"records":[`)
	if err := writeEach(out, records, inJSON[record](out, ",")); err != nil {
		return err
	}
	_, _ = out.w.WriteString(`],"errors":[`)
	if err := writeEach(out, s.failuresOf(ctx, ref), inJSON[failure](out, ",")); err != nil {
		return err
	}
	_, err = out.w.WriteString("]}\n")
	return err
}
