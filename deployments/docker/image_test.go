//go:build linux

package docker_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/deploytest"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

const (
	version = "v0.0.0-image.test"

	// starts bounds the start of a program, which takes tens of milliseconds on an idle machine.
	starts = time.Minute
)

// TestImages does what the Dockerfile says, without an engine: its commands build the programs on this
// machine, and each image is a directory that a process is locked into, with the user, the
// environment and the command of the image and with no file but those that the image has.
func TestImages(t *testing.T) {
	t.Parallel()
	deploytest.OnDemand(t)
	deploytest.Root(t)
	all, _ := stages(t)
	built := build(t, all["build"])
	redis := crawltest.Private(t)
	settings := []string{
		"TRAWL_REDIS_URL=" + redis.URL, "TRAWL_API_KEYS=acme:0123456789abcdef", "TRAWL_ALLOWED_SOURCES=*",
	}
	for name, env := range map[string][]string{"api": settings, "worker": settings, "trawl": settings[1:]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &image{stage: all[name], root: t.TempDir()}
			for _, c := range i.copies {
				if err := copyTo(built+c[0], filepath.Join(i.root, c[1])); err != nil {
					t.Fatal(err)
				}
			}
			i.check(t, name, env)
		})
	}
}

// build runs the commands of the stage build, with directories of the test in place of those of
// the container, and returns what stands for its root.
func build(t *testing.T, s *stage) string {
	t.Helper()
	root := t.TempDir()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": root, // Git's settings go there
		"VERSION": version, "TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH,
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GONOSUMDB", "GOSUMDB"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env[name] = strings.TrimSpace(string(value))
	}
	maps.Copy(env, s.env)
	place := regexp.MustCompile(`(^|\s|>)/(out|rootfs|src)\b`)
	for _, command := range s.run {
		command = place.ReplaceAllStringFunc(command, func(m string) string {
			lead, dir, _ := strings.Cut(m, "/")
			if dir == "src" {
				return lead + checkout
			}
			return lead + filepath.Join(root, dir)
		})
		cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", command)
		cmd.Dir, cmd.Env = checkout, environ(env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", command, err, out)
		}
	}
	return root
}

// image is one of a root directory.
type image struct {
	*stage
	root string
}

// check starts the image, asks its health check and its metrics, and stops it.
func (i *image) check(t *testing.T, name string, settings []string) {
	t.Helper()
	i.checkProgram(t, i.command[0])
	i.checkProgram(t, i.probe[0])
	if out, err := i.run(t, nil, append(slices.Clone(i.command), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s --help: %v\n%s", name, err, out)
	}

	// The port of the image may be taken on this machine, where a container has all of them.
	port := fmt.Sprint(crawltest.FreePort(t))
	env := maps.Clone(i.env)
	for k, v := range env {
		env[k] = strings.ReplaceAll(v, ":"+i.expose, ":"+port)
	}
	probe := []string{i.probe[0], strings.ReplaceAll(i.probe[1], ":"+i.expose, ":"+port)}
	if i.run(t, nil, probe...).Run() == nil {
		t.Errorf("%s: the health check of what does not run is good", name)
	}
	var log bytes.Buffer
	cmd := i.run(t, append(environ(env), settings...), i.command...)
	cmd.Stdout, cmd.Stderr = &log, &log
	before := files(t, i.root)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	crawltest.Eventually(t, starts, name+" is healthy", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("%s ended: %v\n%s", name, err, log.String())
		default:
		}
		return i.run(t, nil, probe...).Run() == nil
	})
	if metrics := get(t, "http://127.0.0.1:"+port+"/metrics"); !strings.Contains(metrics, `version="`+version+`"`) {
		t.Errorf("%s: /metrics does not name the version that it was built as", name)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := crawltest.Receive(t, starts, name+" to end", ended); err != nil {
		t.Errorf("%s: stopped by SIGTERM: %v\n%s", name, err, log.String())
	}
	if after := files(t, i.root); !slices.Equal(before, after) {
		t.Errorf("%s wrote files: there were %q and there are %q", name, before, after)
	}
}

// checkProgram holds that a program needs nothing that the image lacks, and says what it is made of.
func (i *image) checkProgram(t *testing.T, path string) {
	t.Helper()
	path = filepath.Join(i.root, path)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["-trimpath"] != "true" || settings["CGO_ENABLED"] != "0" || info.Main.Path != "example.com/trawl" {
		t.Errorf("%s was built as %v", path, info)
	}
	if settings["vcs"] == "" && exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Run() == nil {
		t.Errorf("%s does not name the commit that it was built from", path)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s needs a dynamic linker, which the image does not have", path)
		}
	}
}

// run returns a command locked into the image, as its user.
func (i *image) run(t *testing.T, env []string, command ...string) *exec.Cmd {
	t.Helper()
	var id uint32
	if _, err := fmt.Sscanf(i.user, "%d:%d", &id, &id); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = "/", append([]string{}, env...) // not nil, which is the environment of the test
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: i.root, Credential: &syscall.Credential{Uid: id, Gid: id}, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

func environ(env map[string]string) []string {
	var all []string
	for k, v := range env {
		all = append(all, k+"="+v)
	}
	return all
}

// copyTo copies a file or a tree as an image has it: root's, and readable by everybody.
func copyTo(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		// A program that is started meanwhile inherits the file for a moment, and what is open for
		// writing cannot be started: "text file busy" (golang/go#22315).
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		return os.WriteFile(target, content, info.Mode().Perm())
	})
}

// files lists what is in an image, with sizes and times.
func files(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all = append(all, fmt.Sprintf("%s %d %v", strings.TrimPrefix(path, root), info.Size(), info.ModTime()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
