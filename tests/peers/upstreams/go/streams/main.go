// A client of gRPC with streams in both directions: `streams ADDRESS CONNECTIONS STREAMS`. Each connection has so many streams
// (FullDuplexCall of the interoperability tests). On each, a message follows whenever the one before was answered, until
// the client's input ends. It prints what it counted: connections that it opened, messages that were answered with the right
// length, and calls that ended. It exits with 1 if one of them failed.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

var opened, answered, ended, failed int64
var isOver int32

func main() {
	address := os.Args[1]
	connections, streams := number(os.Args[2]), number(os.Args[3])
	var group sync.WaitGroup
	for c := 0; c < connections; c++ {
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			atomic.AddInt64(&opened, 1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
		connection, err := grpc.Dial(address, grpc.WithContextDialer(dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		client := testgrpc.NewTestServiceClient(connection)
		for s := 0; s < streams; s++ {
			group.Add(1)
			go func(size int) {
				defer group.Done()
				if err := talk(client, size); err != nil {
					atomic.AddInt64(&failed, 1)
					fmt.Println("a stream failed:", err)
				}
			}(1 + 997*s)
		}
	}
	fmt.Println("begun")
	io.Copy(io.Discard, os.Stdin)
	atomic.StoreInt32(&isOver, 1)
	group.Wait()
	fmt.Printf("connections %d, messages %d, calls %d, failed %d\n", opened, answered, ended, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func talk(client testgrpc.TestServiceClient, size int) error {
	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		return err
	}
	request := &testgrpc.StreamingOutputCallRequest{
		ResponseParameters: []*testgrpc.ResponseParameters{{Size: int32(size)}},
		Payload:            &testgrpc.Payload{Body: make([]byte, size)},
	}
	for atomic.LoadInt32(&isOver) == 0 {
		if err := stream.Send(request); err != nil {
			return err
		}
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(response.GetPayload().GetBody()) != size {
			return fmt.Errorf("%d bytes, and not %d", len(response.GetPayload().GetBody()), size)
		}
		atomic.AddInt64(&answered, 1)
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return fmt.Errorf("another end: %v", err)
	}
	atomic.AddInt64(&ended, 1)
	return nil
}
