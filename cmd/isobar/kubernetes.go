package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/plural"
	"github.com/isobar-xds/isobar/internal/providers"
)

func kubernetesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "kubernetes", Short: "Check a Kubernetes cluster, or files for one"}
	cmd.AddCommand(analyzeCommand())
	return cmd
}

// analyzeFlags say which objects are analyzed, and by which settings.
type analyzeFlags struct {
	config, kubeconfig, context, serviceAccount string
}

func analyzeCommand() *cobra.Command {
	var flags analyzeFlags
	var output outputFormat
	cmd := &cobra.Command{
		Use:   "analyze [FILE|DIRECTORY]...",
		Short: "List problems for Isobar in a Kubernetes cluster, or in files for one",
		Long: `List problems for Isobar: policies without a target, with the name of a port
that does not exist, or in conflict; Nodes and endpoints without a zone; gRPC
clients and Envoys whose bootstrap has no locality; permissions that the service
account lacks. Each finding says how to fix it.

Without files it reads the cluster, with your credentials. With files or
directories (YAML or JSON), it reads only these and needs no cluster; - is
standard input. With the configuration file of the server, it examines only the
namespaces and labels of that file, otherwise all of them. The exit status is 1 if
there are findings other than warnings.`,
		Example: "  isobar kubernetes analyze -c isobar.yaml\n  isobar kubernetes analyze deploy/ policies/\n" +
			"  kubectl get svc,lbp -A -o yaml | isobar kubernetes analyze -",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := flags.analyze(cmd, args)
			if err != nil {
				return err
			}
			return writeFindings(cmd.OutOrStdout(), found, output == outputJSON)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&flags.config, "config", "c", "", "configuration file of the server: namespaces, selector, regions, policies and settings of services")
	fs.StringVar(&flags.kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster (default: $KUBECONFIG, then ~/.kube/config)")
	fs.StringVar(&flags.context, "context", "", "context of the kubeconfig (default: its current one)")
	fs.StringVar(&flags.serviceAccount, "service-account", "isobar/isobar", "the service account of Isobar, NAMESPACE/NAME")
	output.register(cmd)
	return cmd
}

// analyze returns what does not fit.
func (f *analyzeFlags) analyze(cmd *cobra.Command, files []string) ([]kubernetes.Finding, error) {
	if namespace, name, ok := strings.Cut(f.serviceAccount, "/"); !ok || namespace == "" || name == "" {
		return nil, usagef("--service-account %q: want NAMESPACE/NAME", f.serviceAccount)
	}
	cfg := &kubernetes.Config{Cluster: kubernetes.Cluster{Policies: true}}
	if f.config != "" {
		data, err := readConfigFile(f.config, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		c, _, err := config.Decode(inputName(f.config), data)
		if err != nil {
			return nil, err
		}
		if cfg = providers.KubernetesConfig(c); cfg == nil {
			return nil, fmt.Errorf("%s has no discovery.kubernetes", inputName(f.config))
		}
	}
	if cfg.Kubeconfig = f.kubeconfig; cfg.Kubeconfig == "" {
		cfg.Kubeconfig = userKubeconfig()
	}
	cfg.Context = f.context
	a, err := kubernetes.NewAnalysis(cfg, f.serviceAccount)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		unread, err := a.ReadCluster(cmd.Context())
		if err != nil {
			return nil, err
		}
		return append(unread, a.Findings()...), nil
	}
	for _, name := range files {
		if err := addFile(a, name, cmd.InOrStdin()); err != nil {
			return nil, err
		}
	}
	return a.Findings(), nil
}

// userKubeconfig returns the file that kubectl takes.
func userKubeconfig() string {
	if first, _, _ := strings.Cut(os.Getenv("KUBECONFIG"), string(filepath.ListSeparator)); first != "" {
		return first
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".kube", "config")
}

// addFile reads the objects of a file, of all files of a directory, or of standard input.
func addFile(a *kubernetes.Analysis, name string, stdin io.Reader) error {
	if name == "-" {
		data, err := io.ReadAll(io.LimitReader(stdin, maxManifests))
		if err != nil {
			return err
		}
		return addDocuments(a, "standard input", data)
	}
	return filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || path != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return nil
		}
		data, err := os.ReadFile(path) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		return addDocuments(a, path, data)
	})
}

// maxManifests bounds what is read from standard input, in bytes.
const maxManifests = 1 << 30

// addDocuments reads the YAML documents of a file.
func addDocuments(a *kubernetes.Analysis, name string, data []byte) error {
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document map[string]any
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(document) == 0 {
			continue
		}
		object, err := json.Marshal(document)
		if err == nil {
			err = a.Add(object)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// writeFindings prints findings, and fails if one of them is more than a warning.
func writeFindings(out io.Writer, found []kubernetes.Finding, asJSON bool) error {
	failed := 0
	for _, f := range found {
		if !f.Warning {
			failed++
		}
	}
	if asJSON {
		if found == nil {
			found = []kubernetes.Finding{}
		}
		if err := writeJSON(out, found); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			severity := "error"
			if f.Warning {
				severity = "warning"
			}
			if _, err := fmt.Fprintf(out, "%s: %s: %s\n", severity, f.Object, f.Message); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("found %s", plural.Count(failed, "error", "errors"))
	}
	if !asJSON && len(found) == 0 {
		_, err := fmt.Fprintln(out, "no problems found")
		return err
	}
	return nil
}
