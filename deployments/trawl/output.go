package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// The forms of an output.
const (
	formatNDJSON = "ndjson"
	formatJSON   = "json"
	formatCSV    = "csv"
	formatText   = "text"
)

// outputFlags say where the pages go that were found, and how.
type outputFlags struct {
	Output string `short:"o" placeholder:"FILE" default:"-" help:"Where to write; - is standard output."`
	Format string `enum:"ndjson,json,csv,text" default:"ndjson" help:"ndjson: one JSON a line, as pages come. json: all in one document, at the end. csv: a table, at the end. text: one line a page, for people."`

	Columns []string `placeholder:"NAME,…" help:"csv: the columns and their order, as url,fields.price,markdown; by default all but content."`
}

// whole reports whether the output is one document, which is there when all is.
func (f *outputFlags) whole() bool { return f.Format == formatJSON || f.Format == formatCSV }

// columns returns what of a document is asked for.
func (f *outputFlags) columns() []client.DownloadOption {
	if len(f.Columns) == 0 {
		return nil
	}
	return []client.DownloadOption{client.Columns(f.Columns...)}
}

// check finds what would only fail after a job was accepted. It changes nothing.
func (f *outputFlags) check() error {
	if len(f.Columns) > 0 && f.Format != formatCSV {
		return badUsage("--columns: it is for --format csv.")
	}
	switch f.Output {
	case "-":
		return nil
	case "":
		return failuref("--output: the name is empty: name a file, or - for standard output.")
	}
	switch info, err := os.Stat(f.Output); {
	case err == nil && info.IsDir():
		return failuref("--output: %s is a directory: name a file in it.", f.Output)
	case err == nil && info.Mode().IsRegular(): // to open a pipe would wait for its reader
		file, err := os.OpenFile(f.Output, os.O_WRONLY, 0)
		if err != nil {
			return failuref("--output: the file cannot be written: %w", err)
		}
		_ = file.Close() // nothing was written
	}
	switch info, err := os.Stat(filepath.Dir(f.Output)); {
	case errors.Is(err, fs.ErrNotExist):
		return failuref("--output: there is no directory %s: make it first.", filepath.Dir(f.Output))
	case err == nil && !info.IsDir():
		return failuref("--output: %s is no directory: name a file in one.", filepath.Dir(f.Output))
	}
	return nil
}

// output is where the pages of a job go.
type output struct {
	s        *session
	name     string // of the file; empty for standard output
	format   string
	w        io.Writer // nil for a file that is not open yet
	file     *os.File  // nil for standard output, too
	terminal bool      // whether a terminal shows it
	records  int64     // written so far

	// until ends what waits for a reader that does not read; nil waits for ever.
	until <-chan struct{}
}

// writeWithin is how long one write may still take when all is to end.
const writeWithin = leaveWithin / 2

// errUnread says that a write was given up, since it was waited for long enough.
var errUnread = errors.New("nobody reads it")

// whole is as of [outputFlags].
func (o *output) whole() bool { return (&outputFlags{Format: o.format}).whole() }

// open returns the output. through is given standard output and returns the writer to use
// in its place. A file is opened, and emptied, at the first byte for it: what it holds is
// not given away for a crawl that finds nothing.
func (f *outputFlags) open(s *session, through func(io.Writer) io.Writer) *output {
	if f.Output == "-" {
		return &output{s: s, format: f.Format, w: through(s.stdout), terminal: s.isTerminal(s.stdout)}
	}
	return &output{s: s, name: f.Output, format: f.Format}
}

// begin opens the file that is not open yet.
func (o *output) begin() error {
	if o.w != nil {
		return nil
	}
	file, err := o.create()
	if err != nil {
		return o.fault(err)
	}
	o.w, o.file, o.terminal = file, file, o.s.isTerminal(file)
	return nil
}

// create opens the file for writing alone: a pipe that was opened for reading as well would
// have this program for its reader. To open a pipe waits for its reader, for whom an
// interrupt does not wait.
func (o *output) create() (*os.File, error) {
	type opening struct {
		file *os.File
		err  error
	}
	opened := make(chan opening, 1)
	go func() {
		file, err := os.OpenFile(o.name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
		opened <- opening{file, err}
	}()
	var asked <-chan struct{}
	if info, err := os.Stat(o.name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		asked = o.s.asked
	}
	select {
	case got := <-opened:
		return got.file, got.err
	case <-o.until:
	case <-asked:
	}
	return nil, errUnread // what is opened later ends with the process
}

// keeps reports whether there is a file that a document without a record would replace.
func (o *output) keeps() bool {
	info, err := os.Stat(o.name)
	return o.name != "" && err == nil && info.Mode().IsRegular()
}

// untouched says that a file was not written to, "" where one was or there is none.
func (o *output) untouched() string {
	switch {
	case o.w != nil:
		return ""
	case o.keeps():
		return "No record was found, nothing was written: " + o.name + " stays as it was."
	default:
		return "No record was found, nothing was written to " + o.name + "."
	}
}

// record writes one page, whole lines at once: who is interrupted leaves no half of one.
func (o *output) record(r *client.Record) error {
	var line []byte
	if o.format == formatText {
		line = fmt.Appendf(nil, "%d  %s  %s", r.Status, orDash(watch.Clean(r.Title)), watch.Clean(r.URL))
		line = append(line, fieldsText(r.Fields)...)
	} else {
		line = o.shown(withoutUnasked(r.Raw))
	}
	return o.line(line)
}

// line writes what one record is.
func (o *output) line(line []byte) error {
	if err := o.begin(); err != nil {
		return err
	}
	if err := o.write(line); err != nil {
		return err
	}
	o.records++
	return nil
}

// fieldsText returns the fields of a record as a person reads them behind it on a line.
func fieldsText(fields json.RawMessage) string {
	var line bytes.Buffer
	if fields == nil || json.Compact(&line, fields) != nil {
		return ""
	}
	return "  " + watch.Clean(line.String())
}

// shown returns one JSON text in the form that is written.
func (o *output) shown(raw []byte) []byte {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err == nil { // a gateway may have indented it
		raw = line.Bytes()
	}
	if o.terminal {
		return cleanJSON(raw)
	}
	return raw
}

// write writes one line, or nothing of it where that can be undone.
func (o *output) write(line []byte) error {
	line = append(bytes.Clone(line), '\n')
	w := o.w
	return o.fault(o.patiently(func() error {
		n, err := w.Write(line)
		if err != nil {
			takeBack(w, n)
		}
		return err
	}))
}

// patiently waits for a write as long as there is a point in it.
func (o *output) patiently(write func() error) error {
	if o.until == nil {
		return write()
	}
	written := make(chan error, 1)
	go func() { written <- write() }()
	select {
	case err := <-written:
		return err
	case <-o.until:
	}
	timer := time.NewTimer(writeWithin) // most writes only need to be let
	defer timer.Stop()
	select {
	case err := <-written:
		return err
	case <-timer.C:
		return errUnread
	}
}

// regular is what a file can do that is no pipe.
type regular interface {
	io.Seeker
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
}

// takeBack removes the n bytes that were written last from the end of a regular file: a
// disk that is full takes half a line.
func takeBack(w io.Writer, n int) {
	f, ok := w.(regular)
	if !ok {
		return
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil || end != info.Size() {
		return // what stands behind it is another's
	}
	whole := end - int64(n)
	if err := f.Truncate(whole); err == nil {
		_, _ = f.Seek(whole, io.SeekStart) // nothing more is written
	}
}

// document writes a whole document as it comes.
func (o *output) document(r io.Reader) error {
	if err := o.begin(); err != nil {
		return err
	}
	w := &writeFault{o: o}
	if o.terminal {
		whole, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if o.format == formatCSV {
			r = strings.NewReader(cleanTable(string(whole)))
		} else {
			r = bytes.NewReader(cleanJSON(whole))
		}
	}
	_, err := io.Copy(w, r)
	if w.err != nil {
		return o.fault(w.err)
	}
	return err
}

// writeFault remembers what failed while writing: a copy does not tell it from what failed
// while reading.
type writeFault struct {
	o   *output
	err error
}

// Write implements io.Writer.
func (f *writeFault) Write(b []byte) (int, error) {
	w, n := f.o.w, make(chan int, 1)
	f.err = f.o.patiently(func() error {
		written, err := w.Write(b)
		n <- written
		return err
	})
	if errors.Is(f.err, errUnread) {
		return 0, f.err
	}
	return <-n, f.err
}

// outputError says that what was found could not be written.
type outputError struct {
	name string
	err  error
}

// Error implements error.
func (e *outputError) Error() string {
	where := "standard output"
	if e.name != "" {
		where = e.name
	}
	return fmt.Sprintf("The output cannot be written to %s: %v", where, e.err)
}

// Unwrap returns the cause.
func (e *outputError) Unwrap() error { return e.err }

func (o *output) fault(err error) error {
	if err == nil {
		return nil
	}
	return &outputError{o.name, err}
}

// close ends the output. A file that cannot be closed may not be whole.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	return o.fault(o.file.Close())
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
