package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionPatience bounds how long a key press may wait for the server.
const completionPatience = time.Second

// completeServices completes the argument of a number (0 is the first) with the
// names of the server's services; nothing where it does not answer.
func (f *remoteFlags) completeServices(number int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != number {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.services(cmd.Context(), start), cobra.ShellCompDirectiveNoFileComp
	}
}

func (f *remoteFlags) services(ctx context.Context, start string) []cobra.Completion {
	remote, err := f.remote()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	overview, err := remote.Overview(ctx)
	if err != nil {
		return nil
	}
	var out []cobra.Completion
	for i := range overview.Services {
		if name := overview.Services[i].Name; strings.HasPrefix(name, start) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// completeSources completes a flag with the client localities that the service
// of the first argument has demand from; without an argument, of all services.
func (f *remoteFlags) completeSources(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	remote, err := f.remote()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	service := ""
	if len(args) > 0 {
		service = args[0]
	}
	view, err := remote.Plan(ctx, service)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range view.Services {
		for _, s := range view.Services[i].Sources {
			if name := s.Source.String(); name != "" && strings.HasPrefix(name, start) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}
