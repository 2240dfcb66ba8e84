// Command schemas writes the JSON schemas of the kinds that the manifests of Trawl have, for kubeconform:
//
//	go run ./deployments/k8s/schemas        # write them anew, after a version below has changed
//	go run ./deployments/k8s/schemas -check # fail when those that are there are others
//
// They are made from the OpenAPI documents and the CRDs in the modules of Kubernetes, KEDA and the Prometheus
// Operator, so that Go's proxy and its checksums vouch for them. They are strict: a field that the
// API server would drop in silence is a fault.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// The versions that the manifests are checked against. Kubernetes 1.30 and newer has all that they use.
const (
	kubernetes = "k8s.io/kubernetes@v1.36.3"
	keda       = "github.com/kedacore/keda/v2@v2.21.0"
	operator   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// directory is where the schemas are, from the root of the repository. kubeconform finds them by
// {{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json; the group of the core is v1 to it, too.
const directory = "deployments/k8s/schemas"

// source is where the schema of one kind comes from.
type source struct {
	file   string // what is written, without .json
	module string
	path   string // within the module
	name   string // of the definition in an OpenAPI document; "" for a CRD
}

func sources() []source {
	const (
		core       = "api__v1_openapi.json"
		apps       = "apis__apps__v1_openapi.json"
		scaling    = "apis__autoscaling__v2_openapi.json"
		policy     = "apis__policy__v1_openapi.json"
		networking = "apis__networking.k8s.io__v1_openapi.json"
		crds       = "example/prometheus-operator-crd/"
	)
	var all []source
	for _, kind := range []struct{ file, document, name string }{
		{"namespace-v1-v1", core, "core.v1.Namespace"},
		{"serviceaccount-v1-v1", core, "core.v1.ServiceAccount"},
		{"service-v1-v1", core, "core.v1.Service"},
		{"configmap-v1-v1", core, "core.v1.ConfigMap"},
		{"secret-v1-v1", core, "core.v1.Secret"},
		{"deployment-apps-v1", apps, "apps.v1.Deployment"},
		{"statefulset-apps-v1", apps, "apps.v1.StatefulSet"},
		{"horizontalpodautoscaler-autoscaling-v2", scaling, "autoscaling.v2.HorizontalPodAutoscaler"},
		{"poddisruptionbudget-policy-v1", policy, "policy.v1.PodDisruptionBudget"},
		{"networkpolicy-networking.k8s.io-v1", networking, "networking.v1.NetworkPolicy"},
	} {
		all = append(all, source{kind.file, kubernetes, "api/openapi-spec/v3/" + kind.document, "io.k8s.api." + kind.name})
	}
	return append(all,
		source{"scaledobject-keda.sh-v1alpha1", keda, "config/crd/bases/keda.sh_scaledobjects.yaml", ""},
		source{"podmonitor-monitoring.coreos.com-v1", operator, crds + "monitoring.coreos.com_podmonitors.yaml", ""},
	)
}

func main() {
	check := flag.Bool("check", false, "write nothing, and fail when what is there is another")
	flag.Parse()
	if err := run(context.Background(), *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	modules := map[string]string{}
	var stale []error
	for _, s := range sources() {
		if modules[s.module] == "" {
			dir, err := download(ctx, s.module)
			if err != nil {
				return err
			}
			modules[s.module] = dir
		}
		schema, err := s.schema(modules[s.module])
		if err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
		file := filepath.Join(directory, s.file+".json")
		if !check {
			if err := os.WriteFile(file, schema, 0o644); err != nil {
				return err
			}
			continue
		}
		if there, err := os.ReadFile(file); err != nil || !bytes.Equal(there, schema) {
			stale = append(stale, fmt.Errorf("%s is not what %s says: go run ./%s", file, s.module, directory))
		}
	}
	return errors.Join(stale...)
}

// download returns the directory of a module in the module cache.
func download(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	var answer struct{ Dir, Error string }
	if errJSON := json.Unmarshal(out, &answer); errJSON != nil || answer.Error != "" {
		return "", fmt.Errorf("download %s: %w %s", module, errors.Join(err, errJSON), answer.Error)
	}
	return answer.Dir, nil
}

// schema returns the schema that a file of the module holds.
func (s source) schema(module string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(s.path)))
	if err != nil {
		return nil, err
	}
	var schema map[string]any
	if s.name == "" {
		schema, err = ofCRD(text, s.file)
	} else {
		schema, err = ofOpenAPI(text, s.name)
	}
	if err != nil {
		return nil, err
	}
	// What the server reports of an object is in no manifest, and is half of the larger ones.
	if properties, ok := schema["properties"].(map[string]any); ok {
		delete(properties, "status")
	}
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	out, err := json.Marshal(schema)
	return append(out, '\n'), err
}

func ofCRD(text []byte, file string) (map[string]any, error) {
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPI map[string]any `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	for _, v := range crd.Spec.Versions {
		if strings.HasSuffix(file, "-"+v.Name) {
			schema, _ := strict(v.Schema.OpenAPI).(map[string]any)
			// A CRD leaves open what every object has.
			schema["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object"}
			return schema, nil
		}
	}
	return nil, errors.New("the CRD has no such version")
}

func ofOpenAPI(text []byte, name string) (map[string]any, error) {
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	root, ok := document.Components.Schemas[name].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document has no %s", name)
	}
	delete(root["properties"].(map[string]any), "status")
	definitions := map[string]any{}
	schema, _ := strict(root).(map[string]any)
	collect(schema, document.Components.Schemas, definitions)
	schema["$defs"] = definitions
	return schema, nil
}

// collect puts into definitions what the schema refers to, and what that refers to.
func collect(schema any, all, definitions map[string]any) {
	switch s := schema.(type) {
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/components/schemas/")
			s["$ref"] = "#/$defs/" + name
			if _, done := definitions[name]; !done {
				definitions[name] = strict(all[name])
				collect(definitions[name], all, definitions)
			}
		}
		for key, v := range s {
			if key != "$ref" {
				collect(v, all, definitions)
			}
		}
	case []any:
		for _, v := range s {
			collect(v, all, definitions)
		}
	}
}

// strict copies a schema without what is for people and for servers, and closes every object whose
// fields are known.
func strict(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema
	}
	out := map[string]any{}
	for key, v := range s {
		switch key {
		case "description", "default", "nullable", "example", "externalDocs", "title":
		case "format": // a word of OpenAPI, and none of JSON Schema
		case "properties":
			fields := map[string]any{}
			for name, field := range v.(map[string]any) {
				fields[name] = strict(field)
			}
			out[key] = fields
		case "allOf", "anyOf", "oneOf":
			var list []any
			for _, each := range v.([]any) {
				list = append(list, strict(each))
			}
			out[key] = list
		case "items", "additionalProperties", "not":
			out[key] = strict(v)
		default:
			if !strings.HasPrefix(key, "x-kubernetes-") {
				out[key] = v
			}
		}
	}
	if s["x-kubernetes-int-or-string"] == true {
		delete(out, "anyOf")
		out["type"] = []string{"integer", "string"}
	}
	_, known := out["properties"]
	_, open := out["additionalProperties"]
	if known && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out
}
