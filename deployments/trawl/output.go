package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// The forms of an output.
const (
	formatNDJSON = "ndjson"
	formatJSON   = "json"
	formatText   = "text"
)

// outputFlags say where the pages go that were found, and how.
type outputFlags struct {
	Output string `short:"o" placeholder:"FILE" default:"-" help:"Where to write; - is standard output."`
	Format string `enum:"ndjson,json,text" default:"ndjson" help:"ndjson: one JSON a line, as pages come. json: all in one document, at the end. text: one line a page, for people."`
}

// check finds what would only fail after a job was accepted. It changes nothing.
func (f *outputFlags) check() error {
	if f.Output == "-" {
		return nil
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
	if _, err := os.Stat(filepath.Dir(f.Output)); errors.Is(err, fs.ErrNotExist) {
		return failuref("--output: there is no directory %s: make it first.", filepath.Dir(f.Output))
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
}

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
	file, err := os.Create(o.name)
	if err != nil {
		return o.fault(err)
	}
	o.w, o.file, o.terminal = file, file, o.s.isTerminal(file)
	return nil
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
	if err := o.begin(); err != nil {
		return err
	}
	var line []byte
	if o.format == formatText {
		line = fmt.Appendf(nil, "%d  %s  %s", r.Status, orDash(watch.Clean(r.Title)), watch.Clean(r.URL))
	} else {
		line = o.shown(r.Raw)
	}
	if err := o.write(line); err != nil {
		return err
	}
	o.records++
	return nil
}

// shown returns one JSON text in the form that is written.
func (o *output) shown(raw []byte) []byte {
	raw = bytes.TrimSpace(raw)
	if o.terminal {
		return cleanJSON(raw)
	}
	return raw
}

// write writes one line.
func (o *output) write(line []byte) error {
	_, err := o.w.Write(append(bytes.Clone(line), '\n'))
	return o.fault(err)
}

// document writes a whole document as it comes.
func (o *output) document(r io.Reader) error {
	if err := o.begin(); err != nil {
		return err
	}
	w := &writeFault{w: o.w}
	if o.terminal {
		whole, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		r = bytes.NewReader(cleanJSON(whole))
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
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (f *writeFault) Write(b []byte) (n int, err error) {
	n, f.err = f.w.Write(b)
	return n, f.err
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
