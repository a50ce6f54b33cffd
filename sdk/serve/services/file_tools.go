package services

import (
	"context"
	"io/fs"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *files) SearchFiles(req *providerv1.SearchFilesRequest, stream grpc.ServerStreamingServer[providerv1.SearchFilesResponse]) error {
	p, err := Capable[sdk.FileSearcher](s.provider, sdk.CapabilityFileSearch)
	if err != nil {
		return err
	}
	truncated, err := p.SearchFiles(stream.Context(), sdk.SearchFilesRequest{
		InstanceID: req.GetInstanceId(), Path: req.GetPath(), Pattern: req.GetPattern(), Literal: req.GetLiteral(),
		IgnoreCase: req.GetIgnoreCase(), Glob: req.GetGlob(), Limit: max(int(req.GetLimit()), 1),
	}, func(matches []sdk.FileMatch) error {
		for some := range slices.Chunk(matches, maxEntries) {
			resp := &providerv1.SearchFilesResponse{}
			for _, m := range some {
				resp.Matches = append(resp.Matches, wire.EncodeMatch(m))
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
	return stream.Send(&providerv1.SearchFilesResponse{Truncated: true})
}

func (s *files) ReplaceInFiles(ctx context.Context, req *providerv1.ReplaceInFilesRequest) (*providerv1.ReplaceInFilesResponse, error) {
	p, err := Capable[sdk.FileSearcher](s.provider, sdk.CapabilityFileSearch)
	if err != nil {
		return nil, err
	}
	if req.GetOld() == "" {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "old", "must not be empty")
	}
	replaced, err := p.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{InstanceID: req.GetInstanceId(), Paths: req.GetPaths(), Old: req.GetOld(), New: req.GetNew()})
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ReplaceInFilesResponse{}
	for _, r := range replaced {
		resp.Files = append(resp.Files, wire.EncodeReplacement(r))
	}
	return resp, nil
}

func (s *files) WatchFiles(req *providerv1.WatchFilesRequest, stream grpc.ServerStreamingServer[providerv1.WatchFilesResponse]) error {
	p, err := Capable[sdk.FileWatcher](s.provider, sdk.CapabilityFileWatch)
	if err != nil {
		return err
	}
	return p.WatchFiles(stream.Context(), sdk.WatchFilesRequest{InstanceID: req.GetInstanceId(), Path: req.GetPath(), Recursive: req.GetRecursive()},
		func() error { return stream.Send(&providerv1.WatchFilesResponse{}) },
		func(changes []sdk.FileChange) error {
			for some := range slices.Chunk(changes, maxEntries) {
				resp := &providerv1.WatchFilesResponse{}
				for _, c := range some {
					resp.Changes = append(resp.Changes, wire.EncodeChange(c))
				}
				if err := stream.Send(resp); err != nil {
					return err
				}
			}
			return nil
		})
}

func (s *files) SetFileMode(ctx context.Context, req *providerv1.SetFileModeRequest) (*providerv1.SetFileModeResponse, error) {
	p, err := Capable[sdk.FileModeSetter](s.provider, sdk.CapabilityFileMode)
	if err != nil {
		return nil, err
	}
	info, err := p.SetFileMode(ctx, req.GetInstanceId(), req.GetPath(), fs.FileMode(req.GetMode()).Perm())
	if err != nil {
		return nil, err
	}
	return &providerv1.SetFileModeResponse{File: wire.EncodeFile(info)}, nil
}

func (s *files) ReadArchive(req *providerv1.ReadArchiveRequest, stream grpc.ServerStreamingServer[providerv1.ReadArchiveResponse]) error {
	p, err := Capable[sdk.Archiver](s.provider, sdk.CapabilityArchives)
	if err != nil {
		return err
	}
	content, err := p.ReadArchive(stream.Context(), sdk.ReadArchiveRequest{InstanceID: req.GetInstanceId(), Directory: req.GetDirectory(), Paths: req.GetPaths()})
	if err != nil {
		return err
	}
	defer content.Close()
	return sendChunks(content, stream, filechunk.FieldOfReadArchive)
}

func (s *files) WriteArchive(stream grpc.ClientStreamingServer[providerv1.WriteArchiveRequest, providerv1.WriteArchiveResponse]) error {
	p, err := Capable[sdk.Archiver](s.provider, sdk.CapabilityArchives)
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
	summary, err := p.WriteArchive(stream.Context(), header.GetInstanceId(), header.GetDirectory(), filechunk.NewReader(filechunk.Receive(stream, filechunk.FieldOfWriteArchive)))
	if err != nil {
		return err
	}
	return stream.SendAndClose(&providerv1.WriteArchiveResponse{Files: summary.Files, Bytes: summary.Bytes})
}
