package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	var output outputFormat
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  isobar version\n  isobar version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), readBuild())
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "isobar", buildVersion())
			return err
		},
	}
	output.register(cmd)
	return cmd
}

// builtFrom is the commit where the sources come without their history, as in a
// container: -ldflags "-X main.builtFrom=..." sets it.
var builtFrom string

// builtVersion is the version of a release: -ldflags "-X main.builtVersion=..." sets it.
var builtVersion string

// build is what this program was built from.
type build struct {
	Version  string `json:"version"`            // of the module; "(devel)" of a build from a checkout without tags
	Commit   string `json:"commit,omitempty"`   // where the build knows it
	Modified bool   `json:"modified,omitempty"` // the checkout had changes beside the commit
	Go       string `json:"go"`
	Platform string `json:"platform"` // OS/architecture
}

func readBuild() build {
	b := build{Version: "unknown", Commit: builtFrom, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(builtVersion, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// buildVersion names the module version, the commit where the build knows it,
// and the Go version.
func buildVersion() string {
	b := readBuild()
	text := b.Version + " (" + b.Go
	if b.Commit != "" {
		text += ", commit " + b.Commit
	}
	if b.Modified {
		text += " with changes"
	}
	return text + ")"
}
