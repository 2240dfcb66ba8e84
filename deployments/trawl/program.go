package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitOK          = 0
	exitIncomplete  = 1 // the crawl has errors, was cut short, or its reader left
	exitFailed      = 2 // failed, refused, bad input, no server
	exitInterrupted = 130
)

// leaveWithin is how long a command may still tidy up after the second signal.
const leaveWithin = 500 * time.Millisecond

// tidyWithin is how long it may after the first, when what it waited for did not come: the
// crawler of this process is stopped meanwhile.
const tidyWithin = stopWithin + 2*time.Second

// program is one run of the command as a value: everything that it takes from the process
// it runs in.
type program struct {
	name           string    // how hints name it, see invocation; "" is trawl
	args           []string  // without the name of the program
	environ        []string  // as of os.Environ
	stdin          io.Reader // nil is empty
	stdout, stderr io.Writer
	// signals asks for the end: the first for an orderly one, the second for one at once.
	signals <-chan os.Signal

	drain, tidy time.Duration // in place of drainWithin and tidyWithin; 0 for these
}

// session is what the commands share.
type session struct {
	self           string // how hints name the program
	environ        map[string]string
	stdin          io.Reader
	stdout, stderr io.Writer
	asked          chan struct{} // closed at the first signal; at the second the context ends

	// silence is how long a server may not answer before the person hears of it.
	silence time.Duration
	drain   time.Duration // see drainWithin
	// overdue takes a value when the program is to end although something still holds it up.
	overdue chan struct{}
}

// exitError is an end about which everything was said already.
type exitError int

// Error implements error.
func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a fault of the command line. It names the command whose help says more.
type usageError struct {
	command string // as in "crawl"; empty for the whole
	text    string // one fault a line
}

// Error implements error.
func (e *usageError) Error() string { return e.text }

// badUsage is a fault of the command line that the parser does not see.
func badUsage(faults ...string) error { return &usageError{text: strings.Join(faults, "\n")} }

// run executes the command and returns the exit code.
func (p *program) run(ctx context.Context) int {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	s := &session{
		self: cmp.Or(p.name, "trawl"), environ: map[string]string{}, stdin: p.stdin, stdout: p.stdout, stderr: p.stderr,
		asked: make(chan struct{}), silence: 10 * time.Second,
		drain: cmp.Or(p.drain, drainWithin), overdue: make(chan struct{}, 1),
	}
	for _, kv := range p.environ {
		name, value, _ := strings.Cut(kv, "=")
		s.environ[name] = value
	}
	done := make(chan int, 1)
	go func() { done <- s.execute(ctx, p.args) }()

	var late <-chan time.Time
	for signals := 0; ; {
		select {
		case code := <-done:
			return code
		case <-late:
			return exitInterrupted
		case <-p.signals:
			switch signals++; signals {
			case 1:
				s.home()
				close(s.asked)
			case 2:
				leave()
				late = time.After(leaveWithin)
			}
		case <-s.overdue:
			late = time.After(cmp.Or(p.tidy, tidyWithin))
		}
	}
}

// home moves the cursor of a terminal to the first column. A terminal shows ^C where the
// cursor is, and what is said next goes over it.
func (s *session) home() {
	if s.isTerminal(s.stderr) {
		_, _ = io.WriteString(s.stderr, "\r") // there is nobody else to tell
	}
}

// interrupted reports whether the end was asked for.
func (s *session) interrupted() bool {
	select {
	case <-s.asked:
		return true
	default:
		return false
	}
}

// interruptible returns a context that ends at the first signal: for what has nothing to
// put in order.
func (s *session) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.asked:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// rest returns a context for what is left to be done at the end. The first signal ends it;
// where that came before, the given time does.
func (s *session) rest(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if s.interrupted() {
		return context.WithTimeout(ctx, within)
	}
	return s.interruptible(ctx)
}

// expire ends the program in a while even if a write that nobody takes holds it up.
func (s *session) expire() {
	select {
	case s.overdue <- struct{}{}:
	default: // it was said before
	}
}

// execute runs the command that args name and says what went wrong.
func (s *session) execute(ctx context.Context, args []string) int {
	err := s.dispatch(ctx, args)
	var (
		code  exitError
		usage *usageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case isBrokenPipe(err):
		return exitIncomplete // whoever read it has had enough, and there is nobody to tell
	case s.interrupted() && (errors.Is(err, context.Canceled) || errors.Is(err, errUnread)):
		return exitInterrupted
	case errors.As(err, &usage):
		s.complain(usage.text)
		s.sayf("Run %s --help.", strings.TrimSpace(s.self+" "+usage.command))
	default:
		s.complain(err.Error())
	}
	return exitFailed
}

// isBrokenPipe reports whether err comes from a write that nobody reads any more. A
// connection to a server that breaks has a name of its own and is none.
func isBrokenPipe(err error) bool {
	var path *os.PathError
	return errors.As(err, &path) && errors.Is(path.Err, syscall.EPIPE)
}

// dispatch parses args and runs the command.
func (s *session) dispatch(ctx context.Context, args []string) error {
	parser, ended, err := s.parser()
	if err != nil {
		return fmt.Errorf("the table of commands is not right: %w", err)
	}
	if len(args) == 0 {
		return errors.Join(s.showHelp(parser), exitError(exitFailed))
	}
	if err := checkText(args); err != nil {
		return err
	}
	parsed, err := parser.Parse(together(parser, args))
	switch {
	case *ended: // by --help or --version, whatever else is on the line
		return nil
	case isBrokenPipe(err): // of a help that nobody reads to its end
		return err
	case err != nil:
		return usageOf(err)
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(s)
	// A command says what is wrong with its line; which command it is, is known here.
	if usage, ok := errors.AsType[*usageError](err); ok && usage.command == "" {
		usage.command = commandOf(parsed)
	}
	return err
}

// commands is the command line.
type commands struct {
	Up      upCommand      `cmd:"" passthrough:"" help:"Run all of Trawl here: API, worker and store in one process."`
	Crawl   crawlCommand   `cmd:"" help:"Crawl a site, or just some pages, and write what is found."`
	Status  statusCommand  `cmd:"" help:"Show how a job is."`
	Results resultsCommand `cmd:"" help:"Write the pages that a job has found."`
	Errors  errorsCommand  `cmd:"" help:"Show the pages of a job that failed, and why."`
	URLs    urlsCommand    `cmd:"" name:"urls" help:"Show what became of every URL of a job: why is a page missing?"`
	Cancel  cancelCommand  `cmd:"" help:"Stop jobs. What they found is kept."`
	Pause   pauseCommand   `cmd:"" help:"Stop jobs for a while."`
	Resume  resumeCommand  `cmd:"" help:"Have paused jobs go on."`
	Retry   retryCommand   `cmd:"" help:"Try the pages of a job that failed again, in a new job."`
	List    listCommand    `cmd:"" help:"List your jobs, newest first."`

	Extract     extractCommand     `cmd:"" help:"Try what a page gives: of a URL, a file or standard input."`
	Collections collectionsCommand `cmd:"" help:"List your collections: what jobs have found, kept beyond them."`
	Items       itemsCommand       `cmd:"" help:"Write the items of a collection."`
	Analytics   analyticsCommand   `cmd:"" help:"Show which values the items of a collection have."`

	Version kong.VersionFlag `help:"Show the version."`
}

const about = `Crawl web sites, here or on a server.

"trawl crawl URL" needs nothing else. With --url or TRAWL_URL the job runs on the server
that is named; "trawl up" starts one.`

// parser makes the parser of the command line. It sets ended when a flag such as --help
// was all there was to do.
func (s *session) parser() (parser *kong.Kong, ended *bool, err error) {
	ended = new(bool)
	parser, err = kong.New(&commands{},
		kong.Name("trawl"), kong.Description(about),
		kong.Vars{"version": version(), "states": stateNames(), "url_states": urlStateNames(), "default_url": defaultURL},
		kong.Writers(s.stdout, s.stderr), kong.Exit(func(int) { *ended = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	return parser, ended, err
}

// showHelp writes the help of the whole command to stderr.
func (s *session) showHelp(parser *kong.Kong) error {
	parser.Stdout = s.stderr
	top, err := kong.Trace(parser, nil)
	if err != nil {
		return err
	}
	return top.PrintUsage(false)
}

// usageOf turns what the parser says into a fault of the command line.
func usageOf(err error) error {
	usage := &usageError{text: parserWords(err.Error())}
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		usage.command = commandOf(parse.Context)
	}
	return usage
}

// commandOf names the command that was parsed, "" for none.
func commandOf(parsed *kong.Context) string {
	if node := parsed.Selected(); node != nil {
		return node.Name
	}
	return ""
}

// sayf writes a line for the person to stderr, where nothing in it is a command to the terminal.
func (s *session) sayf(format string, args ...any) {
	_, _ = fmt.Fprintln(s.stderr, s.fit(cleanLines(fmt.Sprintf(format, args...)))) // there is nobody else to tell
}

// fit breaks lines between words where the terminal of stderr would break them anywhere.
func (s *session) fit(text string) string {
	if !s.isTerminal(s.stderr) {
		return text
	}
	return wrap(text, width(s.stderr))
}

// complain says what is wrong, under the name of the program.
func (s *session) complain(text string) {
	const name = "trawl: "
	indent := strings.Repeat(" ", len(name))
	text = s.fit(indent + strings.ReplaceAll(cleanLines(text), "\n", "\n"+indent))
	_, _ = fmt.Fprintln(s.stderr, name+strings.TrimPrefix(text, indent)) // there is nobody else to tell
}

// version says what was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "trawl, built without a version"
	}
	built := map[string]string{}
	for _, setting := range info.Settings {
		built[setting.Key] = setting.Value
	}
	text := "trawl " + cmp.Or(info.Main.Version, "(devel)")
	revision := built["vcs.revision"]
	if revision = revision[:min(12, len(revision))]; !strings.Contains(text, revision) {
		text += " " + revision
	}
	return text + " " + info.GoVersion
}
