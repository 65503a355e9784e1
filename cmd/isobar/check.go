package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
)

// defaultConfig is the configuration file that commands take without -c.
const defaultConfig = "isobar.yaml"

func checkCommand() *cobra.Command {
	file := defaultConfig
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration file: every error with its place and what to write instead",
		Long: `Check a configuration file. Every error and warning is printed at once, each as
file:line:column: what is wrong; what to write instead. The exit status is 0 if
a server would take the file, warnings or not. Files of certificates and tokens
that can't be used here are warned about: they may be good where the server runs.`,
		Example: "  isobar check -c isobar.yaml\n  isobar check -c - < isobar.yaml",
		Args:    configByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(file, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			for _, err := range missingFiles(c) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: warning: %v\n", inputName(file), err) // nobody to tell
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), inputName(file)+": ok, "+contents(c))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", file, "configuration file; - for standard input")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json") // fails only for a flag that does not exist
	return cmd
}

// configByFlag refuses arguments: most who give one mean the configuration.
func configByFlag(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("unexpected argument %q; the configuration file is given by -c: %s -c %s", args[0], cmd.CommandPath(), args[0])
}

// readConfig reads a configuration file and prints its warnings.
func readConfig(file string, stdin io.Reader, stderr io.Writer) (*config.Config, error) {
	data, err := readConfigFile(file, stdin)
	if err != nil {
		return nil, err
	}
	c, warnings, err := config.Decode(inputName(file), data)
	printWarnings(stderr, warnings)
	return c, err
}

// readConfigFile reads the bytes of a configuration, as readInput does.
func readConfigFile(file string, stdin io.Reader) ([]byte, error) {
	data, err := readInput(file, stdin)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: say with -c FILE where the configuration is; examples/isobar.yaml is one to begin with", err)
	}
	return data, err
}

func printWarnings(stderr io.Writer, warnings []config.Problem) {
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stderr, w) // nobody to tell
	}
}

func inputName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// readInput reads a file or, for "-", stdin (nil = no such special name); one
// byte more than allowed is enough for the decoder to refuse it.
func readInput(file string, stdin io.Reader) (data []byte, err error) {
	if file == "-" && stdin != nil {
		data, err = io.ReadAll(io.LimitReader(stdin, config.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		return data, nil
	}
	f, err := os.Open(file) //nolint:gosec // the user's own file
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	return io.ReadAll(io.LimitReader(f, config.MaxBytes+1))
}

// contents says in a few words what is configured.
func contents(c *config.Config) string {
	localities, endpoints := 0, 0
	for i := range c.Services {
		localities += len(c.Services[i].Localities)
		for j := range c.Services[i].Localities {
			endpoints += len(c.Services[i].Localities[j].Endpoints)
		}
	}
	text := fmt.Sprintf("%s in %s with %s", count(len(c.Services), "service", "services"),
		count(localities, "locality", "localities"), count(endpoints, "endpoint", "endpoints"))
	if c.Source != nil {
		text += fmt.Sprintf(", and %s whose endpoints %s lists", count(len(c.Source.Services), "service", "services"), c.Source.Server)
	}
	return text
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
