package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// outputFormat is the value of -o.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

var errOutput = errors.New("want text or json")

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value; the help shows it.
func (f *outputFormat) Type() string { return "text|json" }

// Set implements pflag.Value.
func (f *outputFormat) Set(s string) error {
	switch outputFormat(s) {
	case outputText, outputJSON:
		*f = outputFormat(s)
		return nil
	}
	return errOutput
}

// register adds the flag -o to a command, text if it is not given.
func (f *outputFormat) register(cmd *cobra.Command) {
	*f = outputText
	cmd.Flags().VarP(f, "output", "o", "output format")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions( // fails only for a flag that is not there
		[]cobra.Completion{string(outputText), string(outputJSON)}, cobra.ShellCompDirectiveNoFileComp))
}
