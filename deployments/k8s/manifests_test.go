package k8s_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"example.com/trawl/pkg/crawltest/deploytest"
)

// builds are the combinations of components that are checked, by name.
var builds = map[string][]string{
	"base":                  {},
	"redis":                 {"redis"},
	"keda":                  {"keda"},
	"podmonitor":            {"podmonitor"},
	"redis+keda+podmonitor": {"redis", "keda", "podmonitor"},
	"example":               nil, // the overlay of that name
}

// TestManifests holds every build to the schemas of Kubernetes and to what its parts promise each other.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name := range builds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := build(t, name)
			if err := conform(t, text); err != nil {
				t.Error(err)
			}
			for _, fault := range faults(t, parse(t, text)) {
				t.Error(fault)
			}
		})
	}
}

// TestChecksFindFaults breaks a copy of the manifests in one place each, and holds the checks to finding it.
func TestChecksFindFaults(t *testing.T) {
	t.Parallel()
	text := map[string]string{
		"example": build(t, "example"), "keda": build(t, "keda"), "podmonitor": build(t, "podmonitor"),
	}
	for _, c := range []struct{ in, old, broken string }{
		// What the schemas find.
		{"example", "readOnlyRootFilesystem:", "readonlyRootFilesystem:"},
		{"example", "maxSurge: 1", "maxSurge: [1]"},
		{"example", "kind: StatefulSet", "kind: StatefullSet"},
		{"example", "minReplicas: 2", "minReplicas: two"},
		{"example", "maxReplicas: 6", "maxReplica: 6"},
		{"keda", "minReplicaCount: 2", "minReplicasCount: 2"},
		{"podmonitor", "path: /metrics", "paths: /metrics"},
		// What they cannot.
		{"example", "TRAWL_SHUTDOWN_GRACE: 20s", "TRAWL_SHUTDOWN_GRACE: 30s"},
		{"example", "TRAWL_SHUTDOWN_GRACE:", "TRAWL_SHUTDOWN_GRACES:"},
		{"example", "TRAWL_LISTEN: :8008", "TRAWL_LISTEN: 127.0.0.1:8008"},
		{"example", "TRAWL_WORKER_LISTEN: :8009", "TRAWL_WORKER_LISTEN: :8010"},
		{"example", "TRAWL_ALLOWED_SOURCES: https://docs.python.org/3/", "TRAWL_ALLOWED_SOURCES: ftp://x"},
		{"example", "value: /etc/trawl/api/admin-key", "value: /etc/trawl/api/admin"},
		{"example", "key: worker-url", "key: worker_url"},
		{"example", "mountPath: /etc/trawl/redis", "mountPath: /etc/redis"},
		{"example", "runAsUser: 65532", "runAsUser: 1000"},
		{"example", "runAsUser: 999", "runAsUser: 0"},
		{"example", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"},
		{"example", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"},
		{"example", "type: RuntimeDefault", "type: Unconfined"},
		{"example", "enableServiceLinks: false", "enableServiceLinks: true"},
		{"example", "automountServiceAccountToken: false", "automountServiceAccountToken: true"},
		{"example", "serviceAccountName: trawl-worker", "serviceAccountName: trawl-workers"},
		{"example", "memory: 768Mi", "memory: 3Gi"},
		{"example", "path: /readyz", "path: /healthz"},
		{"example", "targetPort: http", "targetPort: https"},
		{"example", "cidr: 2000::/3", "cidr: ::/0"},
		{"example", "- 169.254.0.0/16", "- 169.254.0.0/24"},
		{"example", "- 172.16.0.0/12", "- 172.16.0.0/16"},
		{"example", "- 224.0.0.0/4", "- 128.0.0.0/1"},
		{"example", "  - Ingress\n  - Egress", "  - Egress"},
		{
			"example", "maxUnavailable: 50%\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: trawl-worker",
			"maxUnavailable: 50%\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: trawl-workers",
		},
		{"example", "    kind: Deployment\n    name: trawl-worker", "    kind: Deployment\n    name: trawl-api"},
		{"keda", "    kind: Deployment\n    name: trawl-worker", "    kind: Deployment\n    name: trawl-api"},
		{"keda", "max(trawl_frontier_due_urls)", "max(trawl_frontier_due)"},
		{"keda", "query: max(trawl_queue_oldest_pending_seconds)", "query: max(trawl_queue_oldest_seconds)"},
		{"keda", "metricType: AverageValue", "metricType: Value"},
		{"podmonitor", "port: http\n    scrape", "port: metrics\n    scrape"},
	} {
		broken := strings.Replace(text[c.in], c.old, c.broken, 1)
		if broken == text[c.in] {
			t.Errorf("%s has no %q: name what is there now", c.in, c.old)
			continue
		}
		if conform(t, broken) == nil && len(faults(t, parse(t, broken))) == 0 {
			t.Errorf("%s with %q in place of %q: no check finds it", c.in, c.broken, c.old)
		}
	}
}

// TestSecretsAreNeeded: an overlay whose secrets nobody has written builds nothing, rather than a service
// with a key that everybody knows.
func TestSecretsAreNeeded(t *testing.T) {
	t.Parallel()
	dir := copied(t)
	if err := os.RemoveAll(filepath.Join(dir, "overlays/example/secrets")); err != nil {
		t.Fatal(err)
	}
	if out, err := kustomize(t, filepath.Join(dir, "overlays/example")); err == nil {
		t.Errorf("without secrets it builds %d bytes", len(out))
	}
}

// copied returns a copy of the manifests, with secrets for the example.
func copied(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "k8s")
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"api-keys": "acme:0123456789abcdef0123456789abcdef", "admin-key": "admin-0123456789abcdef",
		"api-url": "redis://trawl-redis:6379/0", "worker-url": "redis://trawl-redis:6379/0",
	} {
		file := filepath.Join(dir, "overlays/example/secrets", name)
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// build returns what kustomize makes of one of the builds.
func build(t *testing.T, name string) string {
	t.Helper()
	dir := copied(t)
	overlay := filepath.Join(dir, "overlays/example")
	if components := builds[name]; components != nil {
		overlay = filepath.Join(dir, "overlays/test")
		text := "resources: [../../base]\ncomponents:\n"
		for _, c := range components {
			text += "  - ../../components/" + c + "\n"
		}
		if err := errors.Join(os.MkdirAll(overlay, 0o755),
			os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := kustomize(t, overlay)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func kustomize(t *testing.T, dir string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), deploytest.Tool(t, "kustomize"), "build", dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil && stderr.Len() > 0 {
		err = errors.New("it warns") // of what the next version refuses
	}
	if err != nil {
		err = fmt.Errorf("kustomize build %s: %w\n%s", filepath.Base(dir), err, stderr.Bytes())
	}
	return stdout.String(), err
}

// conform validates manifests against the schemas beside this test.
func conform(t *testing.T, manifests string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), deploytest.Tool(t, "kubeconform"), "-strict",
		"-schema-location", "schemas/{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubeconform: %w\n%s", err, out)
	}
	return nil
}

// parse reads what the checks look at.
func parse(t *testing.T, manifests string) []object {
	t.Helper()
	var all []object
	d := yaml.NewDecoder(strings.NewReader(manifests))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}
