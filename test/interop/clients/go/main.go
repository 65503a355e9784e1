// Command go is an xDS client of grpc-go. It calls the services given as the
// first argument, separated by commas, one after the other, as many times a second
// in all as the second says. For each line "N" on standard input it makes N calls
// and prints what became of them as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // the xds scheme
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	method   = "/grpc.testing.TestService/EmptyCall"
	deadline = 5 * time.Second
)

// outcome counts what became of calls.
type outcome struct {
	mu     sync.Mutex
	Served map[string]int `json:"served"` // by the place that answered
	Failed map[string]int `json:"failed"` // by error
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: client TARGET,... CALLS_PER_SECOND")
	}
	rate, err := strconv.ParseFloat(args[1], 64)
	if err != nil {
		return err
	}
	var conns []*grpc.ClientConn
	for target := range strings.SplitSeq(args[0], ",") {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	for {
		var n int
		if _, err := fmt.Fscan(in, &n); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := json.NewEncoder(out).Encode(send(conns, n, rate)); err != nil {
			return err
		}
	}
}

// send makes n calls at the rate, without waiting for one before the next.
func send(conns []*grpc.ClientConn, n int, rate float64) *outcome {
	o := &outcome{Served: map[string]int{}, Failed: map[string]int{}}
	var open sync.WaitGroup
	pace := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer pace.Stop()
	for i := range n {
		<-pace.C
		open.Go(func() { o.call(conns[i%len(conns)]) })
	}
	open.Wait()
	return o
}

func (o *outcome) call(conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var headers metadata.MD
	err := conn.Invoke(ctx, method, new(emptypb.Empty), new(emptypb.Empty), grpc.Header(&headers))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		s := status.Convert(err)
		o.Failed[s.Code().String()+": "+s.Message()]++
		return
	}
	place := ""
	if h := headers.Get("hostname"); len(h) > 0 {
		place = h[0]
	}
	o.Served[place]++
}
