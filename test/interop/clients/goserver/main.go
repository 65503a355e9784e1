// Command goserver is a server of grpc-go that takes its listener from xDS. It
// listens on the address given as the first argument, and says the second with
// every answer.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"
)

type service struct {
	testpb.UnimplementedTestServiceServer

	name string
}

func (s *service) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, grpc.SetHeader(ctx, metadata.Pairs("hostname", s.name))
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: goserver ADDRESS NAME")
	}
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return err
	}
	mode := xds.ServingModeCallback(func(_ net.Addr, a xds.ServingModeChangeArgs) { fmt.Fprintln(os.Stderr, a.Mode, a.Err) })
	server, err := xds.NewGRPCServer(grpc.Creds(creds), mode)
	if err != nil {
		return err
	}
	testpb.RegisterTestServiceServer(server, &service{name: args[1]})
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", args[0])
	if err != nil {
		return err
	}
	return server.Serve(l)
}
