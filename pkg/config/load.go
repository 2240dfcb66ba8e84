package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"
)

const (
	prefix = "TRAWL_"

	// maxSecretFile bounds a _FILE: a few thousand keys fit, and a path to a
	// device does not fill memory.
	maxSecretFile = 1 << 20
)

// ErrHelp says that help was asked for and written: the process should end well.
var ErrHelp = errors.New("help was asked for")

// LoadAPI reads the settings of the HTTP process: args without the program's
// name, environ as of os.Environ. Help goes to out, and the error is then
// [ErrHelp]. Otherwise the error joins one error for every fault; the settings
// that have none are filled in all the same, so that a caller can look for more.
func LoadAPI(args, environ []string, out io.Writer) (API, error) {
	var c API
	p := program{name: "trawl-api", about: "Takes crawl jobs over HTTP and answers for them.", defaults: deployed}
	return c, load(&c, p, args, environ, out)
}

// LoadWorker reads the settings of the crawling process as [LoadAPI] does.
func LoadWorker(args, environ []string, out io.Writer) (Worker, error) {
	var c Worker
	p := program{name: "trawl-worker", about: "Works on the crawl jobs that the API took.", defaults: deployed}
	return c, load(&c, p, args, environ, out)
}

// LoadAllInOne reads the settings of both in one process as [LoadAPI] does. name and
// about are what its help calls it and says of it.
func LoadAllInOne(name, about string, args, environ []string, out io.Writer) (AllInOne, error) {
	var c AllInOne
	p := program{
		name: name, about: about, optional: []string{"TRAWL_REDIS_URL"},
		defaults: kong.Vars{"default_redis_url": "", "default_sources": "*", "default_log_format": "text"},
	}
	return c, load(&c, p, args, environ, out)
}

// program is what differs between those that read settings.
type program struct {
	name, about string
	defaults    kong.Vars // of the settings whose default is not the same everywhere
	optional    []string  // settings that may be empty here
}

// deployed are the defaults of the processes that are deployed apart.
var deployed = kong.Vars{
	"default_redis_url": "redis://127.0.0.1:6379/0", "default_sources": "", "default_log_format": "json",
}

// loader collects the faults of one load: kong itself stops at the first.
type loader struct {
	environ map[string]string
	faults  []error
	broken  map[string]bool // settings that have a fault, which further checks skip

	optional []string // settings that may be empty
}

func (l *loader) fault(setting, format string, args ...any) {
	l.broken[setting] = true
	l.faults = append(l.faults, In(setting, fmt.Errorf(format, args...)))
}

func load(target any, p program, args, environ []string, out io.Writer) error {
	l := &loader{environ: map[string]string{}, broken: map[string]bool{}, optional: p.optional}
	for _, e := range environ {
		if k, v, _ := strings.Cut(e, "="); strings.HasPrefix(k, prefix) {
			l.environ[k] = v
		}
	}
	own := settingsOf(reflect.TypeOf(target).Elem())
	l.refuseUnknown()

	k, err := kong.New(target,
		kong.Name(p.name), kong.Description(p.about), p.defaults, kong.Writers(out, out),
		kong.NoDefaultHelp(), kong.Exit(func(int) {}),
		// Text first, meaning later: a mapper that fails would hide all faults after it.
		kong.KindMapper(reflect.Int, l.mapper(parseInt)),
		kong.KindMapper(reflect.Int64, l.mapper(parseInt)),
		kong.KindMapper(reflect.String, l.mapper(parseString)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), l.mapper(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), l.mapper(parseLevel)),
		kong.TypeMapper(reflect.TypeFor[Keys](), l.mapper(parseKeysInto)),
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
			if v, ok := l.environ[variable(flag.Name)]; ok {
				return v, nil
			}
			return nil, nil //nolint:nilnil // kong's way to say "not mine"
		})),
		kong.ValueFormatter(func(v *kong.Value) string {
			suffix := ""
			if v.Tag.Has("secret") {
				suffix = ", or a file in " + variable(v.Name) + "_FILE"
			}
			help := v.Help
			if !strings.HasSuffix(help, "...") { // which is part of what it shows
				help = strings.TrimSuffix(help, ".")
			}
			return fmt.Sprintf("%s (%s%s)", help, variable(v.Name), suffix)
		}),
	)
	if err != nil {
		return fmt.Errorf("config: the table of settings is not right: %w", err)
	}
	if slices.ContainsFunc(args, func(a string) bool { return a == "--help" || a == "-h" }) {
		ctx, err := kong.Trace(k, nil)
		if err != nil {
			return fmt.Errorf("config: help: %w", err)
		}
		if err := ctx.PrintUsage(false); err != nil {
			return fmt.Errorf("config: help: %w", err)
		}
		return ErrHelp
	}

	args = l.secretFiles(own, l.checkFlags(own, args))
	if _, err := k.Parse(args); err != nil {
		if strings.HasPrefix(err.Error(), "unexpected argument") {
			err = errors.New("settings are flags, as --name=value; there is a word that belongs to none") // it may be a key
		}
		l.faults = append(l.faults, fmt.Errorf("command line: %w", err))
		// The environment is looked at all the same.
		if _, err := k.Parse(nil); err != nil {
			l.faults = append(l.faults, fmt.Errorf("environment: %w", err))
		}
	}
	l.check(own, reflect.ValueOf(target).Elem())
	if c, ok := target.(*API); ok {
		l.checkWayIn(c)
	}
	return errors.Join(l.faults...)
}

// setting is one row of the tables that the structs of this package are.
type setting struct {
	name  string // as a flag, without dashes
	field []int
	tag   reflect.StructTag
}

func settingsOf(t reflect.Type) []setting {
	var all []setting
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			all = append(all, setting{f.Tag.Get("name"), f.Index, f.Tag})
		}
	}
	return all
}

func (s setting) has(key string) bool {
	_, ok := s.tag.Lookup(key)
	return ok
}

// variable returns the environment variable of a flag.
func variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// foreign matches variables that belong to no process of Trawl and yet begin
// like ours. Kubernetes sets {SERVICE}_SERVICE_HOST, {SERVICE}_PORT and so on in
// every pod for each service of the namespace; with a service called trawl, no
// pod would start. TRAWL_REQUIRE_[A-Z]+ is read by the tests, and the services
// that a test starts inherit it. The last two are read by who calls a server, in
// a shell that may well start one, too.
var foreign = regexp.MustCompile(
	`^TRAWL_(?:(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)|REQUIRE_[A-Z]+|URL|KEY(?:_FILE)?)$`)

func (l *loader) refuseUnknown() {
	known := map[string]bool{}
	for _, t := range []reflect.Type{reflect.TypeFor[API](), reflect.TypeFor[Worker]()} {
		for _, s := range settingsOf(t) {
			known[variable(s.name)] = true
			if s.has("secret") {
				known[variable(s.name)+"_FILE"] = true
			}
		}
	}
	var unknown []string
	for name := range l.environ {
		if !known[name] && !foreign.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		l.fault(name, "there is no such setting; correct or remove it (--help lists them)")
	}
}

// checkFlags reports every flag that is not known and returns the arguments
// without them, since kong stops at the first.
func (l *loader) checkFlags(own []setting, args []string) []string {
	kept := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		flag, isFlag := strings.CutPrefix(args[i], "--")
		flag, _, hasValue := strings.Cut(flag, "=")
		known := slices.ContainsFunc(own, func(s setting) bool {
			return flag == s.name || s.has("secret") && flag == s.name+"-file"
		})
		if !isFlag || flag == "" || known {
			kept = append(kept, args[i])
			continue
		}
		l.faults = append(l.faults, fmt.Errorf("--%s: there is no such setting (--help lists them)", flag))
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++ // its value
		}
	}
	return kept
}

// secretFiles puts the content of files in the place of the settings that name
// them. It returns the arguments without the flags that it consumed.
func (l *loader) secretFiles(own []setting, args []string) []string {
	for _, s := range own {
		if !s.has("secret") {
			continue
		}
		name, given := variable(s.name), ""
		path, ok := l.environ[name+"_FILE"]
		if ok {
			given = name + "_FILE"
		}
		for i := 0; i < len(args); i++ {
			flag, value, hasValue := strings.Cut(args[i], "=")
			if flag != "--"+s.name+"-file" {
				continue
			}
			end := i + 1
			if !hasValue && end < len(args) {
				value, end = args[end], end+1
			}
			path, given, args = value, flag, slices.Delete(slices.Clone(args), i, end)
			i--
		}
		if given == "" {
			continue
		}
		_, inEnv := l.environ[name]
		inArgs := slices.ContainsFunc(args, func(a string) bool {
			return a == "--"+s.name || strings.HasPrefix(a, "--"+s.name+"=")
		})
		if inEnv || inArgs {
			l.fault(name, "give it or %s, not both", given)
			continue
		}
		content, err := readSecret(path)
		if err != nil {
			l.fault(given, "%w", err)
			l.broken[name] = true
			continue
		}
		l.environ[name] = content
	}
	return args
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing is lost
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", err
	case len(content) > maxSecretFile:
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxSecretFile)
	}
	// Editors and "kubectl create secret" alike leave a line end behind.
	return strings.TrimRight(string(content), "\r\n"), nil
}

// mapper returns a kong mapper that records a fault where kong would stop.
func (l *loader) mapper(parse func(s string, target reflect.Value) []string) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var s string
		if err := ctx.Scan.PopValueInto("value", &s); err != nil {
			return err
		}
		for _, message := range parse(strings.TrimSpace(s), target) {
			l.fault(variable(ctx.Value.Name), "%s", message)
		}
		return nil
	})
}

func parseString(s string, target reflect.Value) []string {
	target.SetString(s)
	return nil
}

func parseInt(s string, target reflect.Value) []string {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return []string{fmt.Sprintf("%q is not a whole number", s)}
	}
	target.SetInt(n)
	return nil
}

func parseDuration(s string, target reflect.Value) []string {
	d, err := time.ParseDuration(s)
	if err != nil {
		return []string{fmt.Sprintf("%q is not a duration like 500ms, 20s or 1h", s)}
	}
	target.SetInt(int64(d))
	return nil
}

func parseLevel(s string, target reflect.Value) []string {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return []string{fmt.Sprintf("%q is not one of debug, info, warn, error", s)}
	}
	target.SetInt(int64(level))
	return nil
}

func parseKeysInto(s string, target reflect.Value) []string {
	keys, faults := parseKeys(s)
	target.Set(reflect.ValueOf(keys))
	return faults
}

// check applies the rules that the tags of the settings state.
func (l *loader) check(own []setting, c reflect.Value) {
	for _, s := range own {
		name := variable(s.name)
		if l.broken[name] {
			continue
		}
		v := c.FieldByIndex(s.field)
		switch value := v.Interface().(type) {
		case int:
			l.checkInt(s, name, int64(value))
		case int64:
			l.checkInt(s, name, value)
		case time.Duration:
			most, err := time.ParseDuration(s.tag.Get("max"))
			if err != nil {
				panic(err) // the tables of this package are wrong, not a setting
			}
			if value < 0 || value > most {
				l.fault(name, "%v is outside 0s to %v", value, most)
			}
		case string:
			l.checkString(s, name, value)
		}
	}
}

// checkWayIn holds that somebody can call the API.
func (l *loader) checkWayIn(c *API) {
	const name = "TRAWL_API_KEYS"
	if l.broken[name] || l.broken["TRAWL_ADMIN_KEY"] || l.broken["TRAWL_GATEWAY_SECRET"] {
		return // what is wrong with it was said
	}
	if len(c.Keys) == 0 && c.AdminKey == "" && c.GatewaySecret == "" {
		l.fault(name, "nobody could call the API: give at least one tenant:key, "+
			"or TRAWL_ADMIN_KEY to make keys with, or TRAWL_GATEWAY_SECRET")
	}
}

func (l *loader) checkInt(s setting, name string, value int64) {
	least, most := mustInt(s.tag.Get("min")), mustInt(s.tag.Get("max"))
	if value < least || value > most {
		l.fault(name, "%d is outside %d to %d", value, least, most)
	}
}

func (l *loader) checkString(s setting, name, value string) {
	if oneof := strings.Fields(s.tag.Get("oneof")); len(oneof) > 0 && !slices.Contains(oneof, value) {
		l.fault(name, "%q is not one of %s", value, strings.Join(oneof, ", "))
	}
	if value == "" {
		if s.has("nonempty") && !slices.Contains(l.optional, name) {
			l.fault(name, "it may not be empty")
		}
		return
	}
	if s.has("address") {
		_, port, err := net.SplitHostPort(value)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			l.fault(name, "%q is not host:port, as 127.0.0.1:8008 or :8008", value)
		}
	}
	if s.has("key") {
		if message := keyFault(value); message != "" {
			l.fault(name, "%s", message)
		}
	}
	// A line break in a user agent would be a header of its own in every request.
	if s.has("printable") && (len(value) > 256 || strings.ContainsFunc(value, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsPrint(r)
	})) {
		l.fault(name, "it is one line of at most 256 printable ASCII characters")
	}
}

func mustInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err) // the tables of this package are wrong, not a setting
	}
	return n
}

func attrs(c any) []slog.Attr {
	v := reflect.ValueOf(c)
	var all []slog.Attr
	for _, s := range settingsOf(v.Type()) {
		value := v.FieldByIndex(s.field).Interface()
		if text, ok := value.(string); ok && s.has("secret") {
			value = redacted(text)
		}
		all = append(all, slog.String(variable(s.name), fmt.Sprint(value)))
	}
	return all
}

// redactable are the schemes of a URL that can be shown in part.
var redactable = []string{"redis", "rediss", "unix", "redis-sentinel", "redis-cluster"}

// redacted is what may be shown of the URL of a Redis: the scheme, the hosts and the
// path. A password may hold any character, also the ones that end an authority when they
// are not escaped, so the last @ of all ends it; parameters may be passwords too. Where
// the two cannot be told apart, and of what is no such URL, nothing is shown: it may be
// the password alone.
func redacted(s string) string {
	if s == "" {
		return ""
	}
	scheme, rest, isURL := strings.Cut(s, "://")
	if !isURL || !slices.Contains(redactable, scheme) {
		return "***"
	}
	at, query := strings.LastIndexByte(rest, '@'), strings.IndexAny(rest, "?#")
	if query >= 0 {
		if at > query {
			return scheme + "://***"
		}
		rest = rest[:query+1] + "…"
	}
	if at >= 0 {
		rest = "***" + rest[at:]
	}
	return scheme + "://" + rest
}
