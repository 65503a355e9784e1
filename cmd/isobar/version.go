package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "isobar", buildVersion())
			return err
		},
	}
}

// builtFrom is the commit where the sources come without their history, as in a
// container: -ldflags "-X main.builtFrom=..." sets it.
var builtFrom string

// buildVersion names the module version, the commit where the build knows it,
// and the Go version.
func buildVersion() string {
	version, commit, dirty := "unknown", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = ", commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = " with changes"
			}
		}
	}
	if commit == "" && builtFrom != "" {
		commit = ", commit " + builtFrom
	}
	return fmt.Sprintf("%s (%s%s%s)", version, runtime.Version(), commit, dirty)
}
