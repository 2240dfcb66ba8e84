package systemd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest/deploytest"
)

// exposure bounds what systemd-analyze security says of a unit, in tenths of its scale from 0 to 10. A
// network service that reaches any address has 1.1 at best.
const exposure = "15"

// units are those of a machine with one worker, by the name they are started by.
var units = map[string]struct {
	file    string
	process deploytest.Process
}{
	"trawl-api.service":         {"trawl-api.service", deploytest.API},
	"trawl-worker@8009.service": {"trawl-worker@.service", deploytest.Worker},
}

// TestUnits holds the units to systemd and to what they promise, and each check to finding a copy that
// breaks it.
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, u := range units {
		text, err := os.ReadFile(u.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(t, u.process, string(text)) {
			t.Errorf("%s: %s", name, fault)
		}
		for _, c := range []struct{ old, broken string }{
			{"TimeoutStopSec=40s", "TimeoutStopSec=30s"},
			{"Type=notify", "Type=simple"},
			{"WatchdogSec=", "#WatchdogSec="},
			{"MemoryMax=", "#MemoryMax="},
			{"MiB", "GiB"},
			{"LISTEN=127.0.0.1", "LISTENS=127.0.0.1"},
			{"LoadCredential=redis-url", "LoadCredential=redis"},
			{"LISTEN=127.0.0.1", "LISTEN=0.0.0.0"},
			{"EnvironmentFile=", "#EnvironmentFile="},
			{"Restart=on-failure", "Restart=no"},
			{"DynamicUser=yes", "User=root"},
		} {
			broken := strings.Replace(string(text), c.old, c.broken, 1)
			if broken == string(text) || len(faults(t, u.process, broken)) == 0 {
				t.Errorf("%s with %q in place of %q: no check finds it", name, c.broken, c.old)
			}
		}
	}
}

// TestVerify asks systemd itself about the units.
func TestVerify(t *testing.T) {
	t.Parallel()
	analyze := deploytest.Tool(t, "systemd-analyze")
	for name, u := range units {
		root := machine(t)
		file := filepath.Join(root, "etc/systemd/system", u.file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(t, analyze, root, name, "trawl.target"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, c := range []struct{ old, broken string }{
			{"ProtectHome=", "ProtectHomes="},
			{"TimeoutStopSec=40s", "TimeoutStopSec=40x"},
			{"SystemCallFilter=@system-service", "SystemCallFilter=@system-services"},
			{"ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/"},
			{"CapabilityBoundingSet=", "#CapabilityBoundingSet="},
		} {
			broken := strings.Replace(string(text), c.old, c.broken, 1)
			if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			if broken == string(text) || verify(t, analyze, root, name) == nil {
				t.Errorf("%s with %q in place of %q: no check finds it", name, c.broken, c.old)
			}
		}
	}
}

// verify lets systemd read units, and judge how much they may. It ends well with a field that it does
// not know, but it says so.
func verify(t *testing.T, analyze, root string, names ...string) error {
	t.Helper()
	for _, args := range [][]string{
		append([]string{"verify", "--man=no", "--root=" + root}, names...),
		{"security", "--no-pager", "--offline=yes", "--root=" + root, "--threshold=" + exposure, names[0]},
	} {
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), analyze, args...)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		err := cmd.Run()
		if err == nil && stderr.Len() > 0 {
			err = errors.New("it warns")
		}
		if err != nil {
			return fmt.Errorf("systemd-analyze %s: %w\n%s", args[0], err, stderr.Bytes())
		}
	}
	return nil
}

// machine returns the root of a machine that has the units, the programs, and what every machine has.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"sysinit", "basic", "shutdown", "multi-user", "network-online"} {
		write("usr/lib/systemd/system/"+target+".target", "[Unit]\nDescription=as on every machine\n", 0o644)
	}
	for _, program := range []string{"trawl-api", "trawl-worker"} {
		write("usr/local/bin/"+program, "#!/bin/sh\n", 0o755)
	}
	for _, unit := range []string{"trawl.target", "trawl-api.service", "trawl-worker@.service"} {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		write("etc/systemd/system/"+unit, string(text), 0o644)
	}
	return root
}

// faults says where a unit is at odds with itself or with its program.
func faults(t *testing.T, process deploytest.Process, text string) []string {
	t.Helper()
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	fields := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			fields[key] = append(fields[key], value)
		}
	}
	env := map[string]string{}
	if slices.Contains(fields["EnvironmentFile"], "/etc/trawl/trawl.env") {
		shared, err := os.ReadFile("trawl.env")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(shared)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				env[name] = strings.Trim(value, `"`)
			}
		}
	}
	// %d is where the credentials are, %i the name of the instance.
	specifiers := strings.NewReplacer("%d", "/run/credentials/unit", "%i", "8009")
	for _, assignment := range fields["Environment"] {
		name, value, _ := strings.Cut(specifiers.Replace(assignment), "=")
		env[name] = value
	}
	var credentials []string
	for _, c := range fields["LoadCredential"] {
		id, _, _ := strings.Cut(c, ":")
		credentials = append(credentials, "/run/credentials/unit/"+id)
	}
	settings, err := deploytest.Load(t, process, env, func(p string) bool { return slices.Contains(credentials, p) })
	if err != nil {
		fault("%v", err)
		return faults
	}
	listens := map[deploytest.Process]string{deploytest.API: "127.0.0.1:8008", deploytest.Worker: "127.0.0.1:8009"}
	if settings.Listen != listens[process] {
		fault("listens on %s", settings.Listen)
	}
	one := func(key string) string {
		if len(fields[key]) != 1 {
			fault("%s is given %d times", key, len(fields[key]))
			return ""
		}
		return fields[key][0]
	}
	if one("DynamicUser") != "yes" {
		fault("runs as a user that others may be, too")
	}
	if one("Type") != "notify" || one("Restart") != "on-failure" ||
		one("ExecStart") != "/usr/local/bin/trawl-"+string(process) {
		fault("is started otherwise")
	}
	if d, err := time.ParseDuration(one("TimeoutStopSec")); err != nil || d < settings.ShutdownGrace+15*time.Second { // last words to the store, and the last spans
		fault("is killed after %v, and may stop for %v", d, settings.ShutdownGrace)
	}
	if d, err := time.ParseDuration(one("WatchdogSec")); err != nil || d < 30*time.Second {
		fault("has a watchdog of %v", d) // live is asked within a half of it
	}
	heap, limit := mebibytes(env["GOMEMLIMIT"]), mebibytes(one("MemoryMax"))
	if heap < limit/2 || heap > limit*95/100 || limit == 0 {
		fault("GOMEMLIMIT is not half to 95 %% of MemoryMax")
	}
	return faults
}

// mebibytes reads a size as the units and GOMEMLIMIT write it; 0 for another.
func mebibytes(s string) int {
	digits := strings.TrimRight(s, "GMiB")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	if strings.HasPrefix(s[len(digits):], "G") {
		n *= 1024
	}
	return n
}
