package k8s_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// object is what the checks look at of an object of any kind; the schemas have looked at all of it.
type object struct {
	Kind     string         `yaml:"kind"`
	Metadata metadata       `yaml:"metadata"`
	Data     map[string]any `yaml:"data"`
	Token    *bool          `yaml:"automountServiceAccountToken"`
	Spec     spec           `yaml:"spec"`
}

type metadata struct {
	Name      string            `yaml:"name"`
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels"`
}

func (o *object) String() string { return o.Kind + "/" + o.Metadata.Name }

// spec has the fields of the specs of all kinds, which share few names.
type spec struct {
	Replicas       *int       `yaml:"replicas"`
	Template       *template  `yaml:"template"`
	Selector       selector   `yaml:"selector"`
	PodSelector    selector   `yaml:"podSelector"`
	PolicyTypes    []string   `yaml:"policyTypes"`
	Ingress        []peers    `yaml:"ingress"`
	Egress         []peers    `yaml:"egress"`
	Ports          []port     `yaml:"ports"`
	Endpoints      []port     `yaml:"podMetricsEndpoints"`
	ScaleTargetRef *targetRef `yaml:"scaleTargetRef"`
	Fallback       any        `yaml:"fallback"`
	Triggers       []trigger  `yaml:"triggers"`
}

// trigger is one of a ScaledObject.
type trigger struct {
	MetricType string            `yaml:"metricType"`
	Metadata   map[string]string `yaml:"metadata"`
}

type targetRef struct {
	Kind string `yaml:"kind"`
	Name string `yaml:"name"`
}

// selector is a LabelSelector, or the map of a Service.
type selector struct {
	matchLabels map[string]string
	in          map[string][]string // of matchExpressions
	given       bool
}

// UnmarshalYAML reads either form.
func (s *selector) UnmarshalYAML(text []byte) error {
	s.given = true
	var full struct {
		MatchLabels      map[string]string `yaml:"matchLabels"`
		MatchExpressions []struct {
			Key      string   `yaml:"key"`
			Operator string   `yaml:"operator"`
			Values   []string `yaml:"values"`
		} `yaml:"matchExpressions"`
	}
	if !strings.Contains(string(text), "match") {
		return yaml.Unmarshal(text, &s.matchLabels)
	}
	if err := yaml.Unmarshal(text, &full); err != nil {
		return err
	}
	s.matchLabels, s.in = full.MatchLabels, map[string][]string{}
	for _, e := range full.MatchExpressions {
		if e.Operator != "In" {
			return fmt.Errorf("these checks do not know the operator %s: teach it to them", e.Operator)
		}
		s.in[e.Key] = e.Values
	}
	return nil
}

// selects reports whether a pod with these labels is meant.
func (s *selector) selects(labels map[string]string) bool {
	for k, v := range s.matchLabels {
		if labels[k] != v {
			return false
		}
	}
	for k, values := range s.in {
		found := false
		for _, v := range values {
			found = found || labels[k] == v
		}
		if !found {
			return false
		}
	}
	return true
}

// port is one of a container, of a Service or of a rule: what is not given is empty.
type port struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
	Port          any    `yaml:"port"`
	TargetPort    any    `yaml:"targetPort"`
}

// peers is a rule of a NetworkPolicy.
type peers struct {
	From  []peer `yaml:"from"`
	To    []peer `yaml:"to"`
	Ports []port `yaml:"ports"`
}

type peer struct {
	PodSelector       *selector `yaml:"podSelector"`
	NamespaceSelector *selector `yaml:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string   `yaml:"cidr"`
		Except []string `yaml:"except"`
	} `yaml:"ipBlock"`
}

type template struct {
	Metadata metadata `yaml:"metadata"`
	Spec     pod      `yaml:"spec"`
}

type pod struct {
	ServiceAccountName string      `yaml:"serviceAccountName"`
	Token              *bool       `yaml:"automountServiceAccountToken"`
	ServiceLinks       *bool       `yaml:"enableServiceLinks"`
	Grace              int         `yaml:"terminationGracePeriodSeconds"`
	Security           security    `yaml:"securityContext"`
	Containers         []container `yaml:"containers"`
	Volumes            []volume    `yaml:"volumes"`
}

type security struct {
	RunAsNonRoot           bool  `yaml:"runAsNonRoot"`
	RunAsUser              int   `yaml:"runAsUser"`
	ReadOnlyRootFilesystem bool  `yaml:"readOnlyRootFilesystem"`
	Escalation             *bool `yaml:"allowPrivilegeEscalation"`
	Seccomp                struct {
		Type string `yaml:"type"`
	} `yaml:"seccompProfile"`
	Capabilities struct {
		Drop []string `yaml:"drop"`
		Add  []string `yaml:"add"`
	} `yaml:"capabilities"`
}

type container struct {
	Name    string `yaml:"name"`
	Image   string `yaml:"image"`
	Ports   []port `yaml:"ports"`
	EnvFrom []struct {
		ConfigMapRef struct {
			Name string `yaml:"name"`
		} `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name      string `yaml:"name"`
		Value     string `yaml:"value"`
		ValueFrom struct {
			Resource struct {
				Resource string `yaml:"resource"`
			} `yaml:"resourceFieldRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	Mounts []struct {
		Name string `yaml:"name"`
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	Resources struct {
		Requests map[string]any `yaml:"requests"`
		Limits   map[string]any `yaml:"limits"`
	} `yaml:"resources"`
	Security  security `yaml:"securityContext"`
	Startup   *probe   `yaml:"startupProbe"`
	Readiness *probe   `yaml:"readinessProbe"`
	Liveness  *probe   `yaml:"livenessProbe"`
	Lifecycle struct {
		PreStop struct {
			Sleep struct {
				Seconds int `yaml:"seconds"`
			} `yaml:"sleep"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
}

type probe struct {
	HTTP *struct {
		Path string `yaml:"path"`
		Port any    `yaml:"port"`
	} `yaml:"httpGet"`
}

type volume struct {
	Name   string `yaml:"name"`
	Secret *struct {
		Name  string `yaml:"secretName"`
		Items []struct {
			Key  string `yaml:"key"`
			Path string `yaml:"path"`
		} `yaml:"items"`
	} `yaml:"secret"`
}

// mebibytes reads a quantity of memory as the manifests write it; 0 for another.
func mebibytes(q any) int {
	s := fmt.Sprint(q)
	factor := 1
	if strings.HasSuffix(s, "Gi") {
		factor = 1024
	}
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSuffix(s, "Gi"), "Mi"))
	if err != nil {
		return 0
	}
	return n * factor
}
