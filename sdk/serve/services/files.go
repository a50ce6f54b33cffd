// Package services has those services of the provider protocol that others than plugins
// serve as well: files, commands and ports. Plugins serve them by package serve; what is no
// plugin, such as the guest of a sandbox, does so without go-plugin.
package services

import (
	"context"
	"io"
	"io/fs"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// files puts the files of a provider behind gRPC.
type files struct {
	providerv1.UnimplementedFileServiceServer
	providerv1.UnimplementedFileSearchServiceServer
	providerv1.UnimplementedFileWatchServiceServer
	providerv1.UnimplementedFileModeServiceServer
	providerv1.UnimplementedArchiveServiceServer
	provider any
}

// RegisterFiles serves sdk.Files, sdk.FileSearcher, sdk.FileWatcher, sdk.FileModeSetter and
// sdk.Archiver; those that the provider lacks answer so. The codec of the server is that of
// filechunk, and its interceptors encode errors.
func RegisterFiles(registrar grpc.ServiceRegistrar, provider any) {
	s := &files{provider: provider}
	providerv1.RegisterFileServiceServer(registrar, s)
	providerv1.RegisterFileSearchServiceServer(registrar, s)
	providerv1.RegisterFileWatchServiceServer(registrar, s)
	providerv1.RegisterFileModeServiceServer(registrar, s)
	providerv1.RegisterArchiveServiceServer(registrar, s)
}

// Capable returns a provider as the interface of a capability.
func Capable[T any](provider any, c sdk.Capability) (T, error) {
	p, ok := provider.(T)
	if ok {
		return p, nil
	}
	name := ""
	if described, ok := provider.(sdk.Provider); ok {
		name = described.Describe().Name
	}
	return p, sdk.NotSupported(name, c)
}

func (s *files) StatFile(ctx context.Context, req *providerv1.StatFileRequest) (*providerv1.StatFileResponse, error) {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return nil, err
	}
	info, err := p.StatFile(ctx, req.GetInstanceId(), req.GetPath())
	if err != nil {
		return nil, err
	}
	return &providerv1.StatFileResponse{File: wire.EncodeFile(info)}, nil
}

// maxEntries is how many entries of a list one message has: the broker takes no
// message of any size, and an author may hand over all of a list at once.
const maxEntries = 500

func (s *files) ListFiles(req *providerv1.ListFilesRequest, stream grpc.ServerStreamingServer[providerv1.ListFilesResponse]) error {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return err
	}
	truncated, err := p.ListFiles(stream.Context(), sdk.ListFilesRequest{
		InstanceID: req.GetInstanceId(), Path: req.GetPath(), Depth: max(int(req.GetDepth()), 1), Glob: req.GetGlob(), Limit: max(int(req.GetLimit()), 1),
	}, func(files []sdk.FileInfo) error {
		for some := range slices.Chunk(files, maxEntries) {
			resp := &providerv1.ListFilesResponse{}
			for _, f := range some {
				resp.Files = append(resp.Files, wire.EncodeFile(f))
			}
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || !truncated {
		return err
	}
	return stream.Send(&providerv1.ListFilesResponse{Truncated: true})
}

func (s *files) ReadFile(req *providerv1.ReadFileRequest, stream grpc.ServerStreamingServer[providerv1.ReadFileResponse]) error {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return err
	}
	info, content, err := p.ReadFile(stream.Context(), sdk.ReadFileRequest{
		InstanceID: req.GetInstanceId(), Path: req.GetPath(), Offset: req.GetOffset(), Length: max(req.GetLength(), 0),
	})
	if err != nil {
		return err
	}
	defer content.Close()
	if err := stream.Send(&providerv1.ReadFileResponse{Part: &providerv1.ReadFileResponse_File{File: wire.EncodeFile(info)}}); err != nil {
		return err
	}
	return sendChunks(content, stream, filechunk.FieldOfFile)
}

func (s *files) WriteFile(stream grpc.ClientStreamingServer[providerv1.WriteFileRequest, providerv1.WriteFileResponse]) error {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "the first message must be the header")
	}
	info, err := p.WriteFile(stream.Context(), sdk.WriteFileRequest{
		InstanceID: header.GetInstanceId(), Path: header.GetPath(), Mode: fs.FileMode(header.GetMode()).Perm(), MakeParents: header.GetMakeParents(),
	}, filechunk.NewReader(filechunk.Receive(stream, filechunk.FieldOfFile)))
	if err != nil {
		return err
	}
	return stream.SendAndClose(&providerv1.WriteFileResponse{File: wire.EncodeFile(info)})
}

func (s *files) MakeDirectory(ctx context.Context, req *providerv1.MakeDirectoryRequest) (*providerv1.MakeDirectoryResponse, error) {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return nil, err
	}
	info, err := p.MakeDirectory(ctx, req.GetInstanceId(), req.GetPath(), fs.FileMode(req.GetMode()).Perm())
	if err != nil {
		return nil, err
	}
	return &providerv1.MakeDirectoryResponse{File: wire.EncodeFile(info)}, nil
}

func (s *files) MoveFile(ctx context.Context, req *providerv1.MoveFileRequest) (*providerv1.MoveFileResponse, error) {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return nil, err
	}
	info, err := p.MoveFile(ctx, sdk.MoveFileRequest{InstanceID: req.GetInstanceId(), From: req.GetFrom(), To: req.GetTo(), Overwrite: req.GetOverwrite()})
	if err != nil {
		return nil, err
	}
	return &providerv1.MoveFileResponse{File: wire.EncodeFile(info)}, nil
}

func (s *files) CopyFile(ctx context.Context, req *providerv1.CopyFileRequest) (*providerv1.CopyFileResponse, error) {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return nil, err
	}
	info, err := p.CopyFile(ctx, sdk.MoveFileRequest{InstanceID: req.GetInstanceId(), From: req.GetFrom(), To: req.GetTo(), Overwrite: req.GetOverwrite()})
	if err != nil {
		return nil, err
	}
	return &providerv1.CopyFileResponse{File: wire.EncodeFile(info)}, nil
}

func (s *files) RemoveFile(ctx context.Context, req *providerv1.RemoveFileRequest) (*providerv1.RemoveFileResponse, error) {
	p, err := Capable[sdk.Files](s.provider, sdk.CapabilityFiles)
	if err != nil {
		return nil, err
	}
	return &providerv1.RemoveFileResponse{}, p.RemoveFile(ctx, req.GetInstanceId(), req.GetPath(), req.GetRecursive())
}

// sendChunks sends what a reader gives, as it comes.
func sendChunks(content io.Reader, stream grpc.ServerStream, field protowire.Number) error {
	readErr, sendErr := filechunk.SendAll(stream, field, content, false)
	if readErr != nil {
		return readErr
	}
	return sendErr
}
