package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	command "flag" // this package has a flag of its own
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

var (
	updateGolden = command.String("update-golden", "", "write what the store writes today into this folder of testdata/golden")
	forceGolden  = command.Bool("force-golden", false, "let -update-golden replace a folder: it is what older processes wrote, think twice")
)

// goldenDir has a folder for each writer whose keys are to be read for ever.
const goldenDir = "testdata/golden"

// goldenFile is keys.json: all that a Redis held, as data. It is no DUMP, whose form is that of a
// version of Redis.
type goldenFile struct {
	Now  int64             `json:"now"`  // ms since the epoch, by which everything in it counts
	Jobs map[string]string `json:"jobs"` // id by the name of the step that made it
	Keys []keptKey         `json:"keys"`
}

// keptKey is one key. Value has the text of a string; field, value, … of a hash; the members of a
// list in order, of a set, and of a ZSET each with its score behind it.
type keptKey struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	TTL   int64  `json:"ttl,omitempty"` // s, rounded up; 0 for none
	Value []blob `json:"value"`
}

// blob is a value of Redis: a JSON string where it is one, else base64 in an object.
type blob string

type binaryBlob struct {
	Base64 string `json:"base64"`
}

func (b blob) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(binaryBlob{base64.StdEncoding.EncodeToString([]byte(b))})
}

func (b *blob) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		return json.Unmarshal(text, (*string)(b))
	}
	var bin binaryBlob
	if err := json.Unmarshal(text, &bin); err != nil {
		return err
	}
	data, err := base64.StdEncoding.DecodeString(bin.Base64)
	*b = blob(data)
	return err
}

// readKey reads a key whole; it is for tests, where all are small.
func readKey(ctx context.Context, rdb redis.UniversalClient, key string) (keptKey, error) {
	k := keptKey{Key: key, Type: rdb.Type(ctx, key).Val()}
	if ttl := rdb.PTTL(ctx, key).Val(); ttl > 0 {
		k.TTL = int64((ttl + time.Second - 1) / time.Second)
	}
	var values []string
	var err error
	switch k.Type {
	case "string":
		values = make([]string, 1)
		values[0], err = rdb.Get(ctx, key).Result()
	case "list":
		values, err = rdb.LRange(ctx, key, 0, -1).Result()
	case "set":
		values, err = rdb.SMembers(ctx, key).Result()
		slices.Sort(values)
	case "zset":
		var members []redis.Z
		members, err = rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		for _, m := range members {
			values = append(values, m.Member.(string), strconv.FormatFloat(m.Score, 'f', -1, 64))
		}
	case "hash":
		var fields map[string]string
		fields, err = rdb.HGetAll(ctx, key).Result()
		for field := range fields {
			values = append(values, field)
		}
		slices.Sort(values)
		for i := 0; i < len(values); i += 2 {
			values = slices.Insert(values, i+1, fields[values[i]])
		}
	default:
		err = fmt.Errorf("a key of type %q", k.Type)
	}
	for _, v := range values {
		k.Value = append(k.Value, blob(v))
	}
	return k, err
}

// write is the inverse of readKey. What others have in the key stays, but for a string or list.
func (k *keptKey) write(ctx context.Context, p redis.Pipeliner) {
	args := []any{map[string]string{
		"string": "SET", "list": "RPUSH", "set": "SADD", "zset": "ZADD", "hash": "HSET",
	}[k.Type], k.Key}
	for i := range k.Value {
		if k.Type == "zset" { // the score comes first
			args = append(args, string(k.Value[i^1]))
		} else {
			args = append(args, string(k.Value[i]))
		}
	}
	p.Do(ctx, args...)
	if k.TTL > 0 {
		p.PExpire(ctx, k.Key, time.Duration(k.TTL)*time.Second)
	}
}

// export reads all keys but those of the host that others use, too.
func (s *scene) export(t *testing.T) goldenFile {
	t.Helper()
	out := goldenFile{Now: s.at().UnixMilli(), Jobs: map[string]string{}}
	for name, n := range s.jobs {
		out.Jobs[name] = n.Job.ID
	}
	for _, key := range s.rdb.Keys(t.Context(), "*").Val() {
		if strings.HasPrefix(key, "{h:") && !strings.Contains(key, goldenTenant) {
			continue
		}
		k, err := readKey(t.Context(), s.rdb, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		out.Keys = append(out.Keys, k)
	}
	slices.SortFunc(out.Keys, func(a, b keptKey) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// golden is a golden file, loaded into a Redis under a tenant of the test's own.
type golden struct {
	*fixture
	jobs   map[string]crawl.JobRef
	dir    string
	key    [32]byte          // digest of the tenant's key
	spells *strings.Replacer // what stands for the test's own names in the files
}

// loadGolden loads what a folder has; alone leaves out what is not of the tenant itself.
func loadGolden(t *testing.T, r *crawltest.Redis, dir string, alone bool) *golden {
	t.Helper()
	var file goldenFile
	tenant := crawltest.Tenant(t)
	if len(tenant) != len(goldenTenant) {
		t.Fatalf("%s is not as long as the tenant in the golden files", tenant)
	}
	g := &golden{fixture: &fixture{tenant: tenant}, jobs: map[string]crawl.JobRef{}, dir: dir, key: digest()}
	old, own := hex.EncodeToString(goldenKey[:]), hex.EncodeToString(g.key[:])
	g.spells = strings.NewReplacer(goldenTenant, tenant, old, own, old[:16], own[:16]) // the last is the id of the key
	g.readJSON(t, "keys.json", &file)
	g.now = file.Now
	g.Store = New(r.Client, Options{Now: g.clock, Sweeps: func(name string) bool { return name == tenant }})
	for name, id := range file.Jobs {
		g.jobs[name] = crawl.JobRef{Tenant: tenant, ID: id}
	}
	p := r.Client.Pipeline()
	for i := range file.Keys {
		if k := &file.Keys[i]; !alone || strings.HasPrefix(k.Key, rootKey(tenant)) || k.Key == tenantsKey {
			k.write(t.Context(), p)
		}
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func (f *fixture) clock() int64 { return f.at().UnixMilli() }

// readJSON reads a golden file with names of the test's own in place of those that stand in it, so
// that tests that share a Redis keep apart. All have the length of what they stand for, and bytes
// that are no text hold none.
func (g *golden) readJSON(t *testing.T, name string, v any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(g.spells.Replace(string(text))))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s of %s: %v", name, g.dir, err)
	}
}

func writeJSONFile(t *testing.T, path string, v any) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil { //nolint:gosec // a test file, for all to read
		t.Fatal(err)
	}
}

// TestWriteGolden writes the golden files of the store as it is. It is run by hand:
//
//	go test ./pkg/store -run TestWriteGolden -update-golden v2
func TestWriteGolden(t *testing.T) {
	t.Parallel()
	if *updateGolden == "" {
		t.Skip("writes golden files when -update-golden names a folder")
	}
	dir := filepath.Join(goldenDir, *updateGolden)
	if _, err := os.Stat(dir); !*forceGolden && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is there already. It is what older processes wrote and must stay readable: write a new folder.", dir)
	}
	_, s := newScene(t, slices.Concat(goldenSteps, laterSteps)...)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	file := s.export(t)
	writeJSONFile(t, filepath.Join(dir, "keys.json"), file)
	writeJSONFile(t, filepath.Join(dir, "answers.json"), s.answers(t, file.Jobs, goldenKey))
}

// answers are what every read of the store says, as JSON by the name of the read.
func (f *fixture) answers(t *testing.T, jobs map[string]string, apiKey [32]byte) map[string]any {
	t.Helper()
	ctx, out := t.Context(), map[string]any{}
	put := func(name string, v any, err error) {
		var fault *crawl.Fault
		switch {
		case errors.As(err, &fault):
			out[name] = map[string]any{"fault": fault.Code, "at": fault.At}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			out[name] = v
		}
	}
	for name, id := range jobs {
		ref := crawl.JobRef{Tenant: f.tenant, ID: id}
		job, err := f.Job(ctx, ref)
		put(name+" job", job, err)
		records, err := f.Records(ctx, ref, 0, 1000)
		put(name+" records", records, err)
		var contents []*crawl.Content // JSON of a record leaves it out
		for i := range records.Records {
			contents = append(contents, records.Records[i].Content)
		}
		put(name+" contents", contents, nil)
		failures, err := f.Failures(ctx, ref, 0, 1000)
		put(name+" failures", failures, err)
		urls, err := f.URLs(ctx, ref, URLQuery{Limit: 1000})
		slices.SortFunc(urls.URLs, func(a, b URLEntry) int { // each state for itself is in order, or in none
			return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.URL, b.URL))
		})
		put(name+" urls", urls, err)
		events, err := f.WebhookEvents(ctx, ref)
		put(name+" events", events, err)
	}
	list, err := f.List(ctx, ListQuery{Tenant: f.tenant, Limit: 200})
	put("jobs", list, err)
	f.collectionAnswers(t, put)
	key, tenant, err := f.Authenticate(ctx, apiKey)
	put("authenticate", []any{key, tenant}, err)
	tenant, err = f.Tenant(ctx, f.tenant)
	put("tenant", tenant, err)
	keys, err := f.Keys(ctx, f.tenant)
	slices.SortFunc(keys, func(a, b crawl.APIKey) int { return cmp.Compare(a.Label, b.Label) })
	put("keys", keys, err)
	robots, err := f.ClaimRobots(ctx, goldenURL(t, "http://"+f.tenant+".test/"), "trawl")
	robots.Claim = ""
	put("robots", robots, err)
	return out
}

// collectionAnswers are the reads of collections.
func (f *fixture) collectionAnswers(t *testing.T, put func(string, any, error)) {
	t.Helper()
	ctx := t.Context()
	collections, err := f.Collections(ctx, f.tenant, "", 200)
	put("collections", collections, err)
	missing := true
	for _, c := range collections.Collections {
		items, err := f.Items(ctx, ItemQuery{Tenant: f.tenant, Collection: c.Name, Limit: 1000})
		put("items of "+c.Name, items, err)
		items, err = f.Items(ctx, ItemQuery{Tenant: f.tenant, Collection: c.Name, Limit: 1000, Filters: []Filter{{"city", "Bern"}}})
		put("items in Bern of "+c.Name, items, err)
		items, err = f.Items(ctx, ItemQuery{Tenant: f.tenant, Collection: c.Name, Limit: 1000, Missing: &missing})
		put("missing items of "+c.Name, items, err)
		analytics, err := f.Analytics(ctx, f.tenant, c.Name, 10)
		put("analytics of "+c.Name, analytics, err)
		sl := &Slice{Job: crawl.JobRef{Tenant: f.tenant}, Plan: crawl.Plan{Collection: &c.Collection}}
		visit, err := f.Visited(ctx, sl, goldenURL(t, "http://site.test/0"))
		put("visit of "+c.Name, visit, err)
	}
}
