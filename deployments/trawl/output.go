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
	if info, err := os.Stat(f.Output); err == nil && info.IsDir() {
		return failuref("--output: %s is a directory: name a file in it.", f.Output)
	}
	if _, err := os.Stat(filepath.Dir(f.Output)); errors.Is(err, fs.ErrNotExist) {
		return failuref("--output: there is no directory %s: make it first.", filepath.Dir(f.Output))
	}
	return nil
}

// output is where the pages of a job go.
type output struct {
	name     string // for messages; empty for standard output
	format   string
	w        io.Writer
	file     *os.File // nil for standard output
	terminal bool     // whether a terminal shows it
	records  int64    // written so far
}

// open opens the output; an existing file is emptied. through is given standard output
// and returns the writer to use in its place.
func (f *outputFlags) open(s *session, through func(io.Writer) io.Writer) (*output, error) {
	if f.Output == "-" {
		return &output{format: f.Format, w: through(s.stdout), terminal: s.isTerminal(s.stdout)}, nil
	}
	file, err := os.Create(f.Output)
	if err != nil {
		return nil, failuref("--output: the file cannot be written: %w", err)
	}
	return &output{name: f.Output, format: f.Format, w: file, file: file, terminal: s.isTerminal(file)}, nil
}

// record writes one page, whole lines at once: who is interrupted leaves no half of one.
func (o *output) record(r *client.Record) error {
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
