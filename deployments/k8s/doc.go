// Package k8s holds the tests of the manifests beside it: what kustomize builds of them is valid, and its
// parts fit together and with the programs.
package k8s
