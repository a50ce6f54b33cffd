package files

import (
	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Bounds on what a call may take of the guest. None is meant to be met in
// ordinary use.
const (
	maxDirectory = 100_000 // entries of one directory
	maxDepth     = 256     // directories in one another
	anyDepth     = maxDepth + 1
	maxResults   = 100_000 // entries or matches of one call
	maxWatchers  = 16      // calls of WatchFiles at once
)

// copyBytes is the buffer for copies inside the sandbox.
const copyBytes = 128 << 10

// Options of the services.
type Options struct {
	// Roots are the directories below which files may be touched. Relative
	// paths begin at the first.
	Roots []string
	// Room returns an error when memory is scarce, which files take as well; nil
	// if nobody knows. It is asked now and then while something is written.
	Room func() error
}

// service implements the gRPC services.
type service struct {
	providerv1.UnimplementedFileServiceServer
	providerv1.UnimplementedFileSearchServiceServer
	providerv1.UnimplementedFileWatchServiceServer
	providerv1.UnimplementedFileModeServiceServer
	providerv1.UnimplementedArchiveServiceServer

	options  Options
	watchers chan struct{} // holds one for each WatchFiles
}

// Register adds the services to a server, whose codec is filechunk's.
func Register(registrar grpc.ServiceRegistrar, o Options) {
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	s := &service{options: o, watchers: make(chan struct{}, maxWatchers)}
	providerv1.RegisterFileServiceServer(registrar, s)
	providerv1.RegisterFileSearchServiceServer(registrar, s)
	providerv1.RegisterFileWatchServiceServer(registrar, s)
	providerv1.RegisterFileModeServiceServer(registrar, s)
	providerv1.RegisterArchiveServiceServer(registrar, s)
}
