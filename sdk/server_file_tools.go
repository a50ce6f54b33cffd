package sdk

import (
	"context"
	"io/fs"
	"slices"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

func (s *server) SearchFiles(req *providerv1.SearchFilesRequest, stream grpc.ServerStreamingServer[providerv1.SearchFilesResponse]) error {
	p, err := capable[FileSearcher](s, CapabilityFileSearch)
	if err != nil {
		return err
	}
	truncated, err := p.SearchFiles(stream.Context(), SearchFilesRequest{
		InstanceID: req.GetInstanceId(), Path: req.GetPath(), Pattern: req.GetPattern(), Literal: req.GetLiteral(),
		IgnoreCase: req.GetIgnoreCase(), Glob: req.GetGlob(), Limit: max(int(req.GetLimit()), 1),
	}, func(matches []FileMatch) error {
		for some := range slices.Chunk(matches, maxEntries) {
			resp := &providerv1.SearchFilesResponse{}
			for _, m := range some {
				resp.Matches = append(resp.Matches, &providerv1.FileMatch{
					Path: truncate(m.Path), Line: int32(m.Line), Column: int32(m.Column), Text: cutText(m.Text, MaxMatchText),
				})
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

func (s *server) ReplaceInFiles(ctx context.Context, req *providerv1.ReplaceInFilesRequest) (*providerv1.ReplaceInFilesResponse, error) {
	p, err := capable[FileSearcher](s, CapabilityFileSearch)
	if err != nil {
		return nil, err
	}
	if req.GetOld() == "" {
		return nil, FieldErrorf(CodeInvalidRequest, "old", "must not be empty")
	}
	replaced, err := p.ReplaceInFiles(ctx, ReplaceInFilesRequest{InstanceID: req.GetInstanceId(), Paths: req.GetPaths(), Old: req.GetOld(), New: req.GetNew()})
	if err != nil {
		return nil, err
	}
	resp := &providerv1.ReplaceInFilesResponse{}
	for _, r := range replaced {
		resp.Files = append(resp.Files, &providerv1.FileReplacement{Path: truncate(r.Path), Count: r.Count})
	}
	return resp, nil
}

func (s *server) WatchFiles(req *providerv1.WatchFilesRequest, stream grpc.ServerStreamingServer[providerv1.WatchFilesResponse]) error {
	p, err := capable[FileWatcher](s, CapabilityFileWatch)
	if err != nil {
		return err
	}
	return p.WatchFiles(stream.Context(), WatchFilesRequest{InstanceID: req.GetInstanceId(), Path: req.GetPath(), Recursive: req.GetRecursive()},
		func() error { return stream.Send(&providerv1.WatchFilesResponse{}) },
		func(changes []FileChange) error {
			for some := range slices.Chunk(changes, maxEntries) {
				resp := &providerv1.WatchFilesResponse{}
				for _, c := range some {
					resp.Changes = append(resp.Changes, &providerv1.FileChange{Kind: string(c.Kind), Path: truncate(c.Path)})
				}
				if err := stream.Send(resp); err != nil {
					return err
				}
			}
			return nil
		})
}

func (s *server) SetFileMode(ctx context.Context, req *providerv1.SetFileModeRequest) (*providerv1.SetFileModeResponse, error) {
	p, err := capable[FileModeSetter](s, CapabilityFileMode)
	if err != nil {
		return nil, err
	}
	info, err := p.SetFileMode(ctx, req.GetInstanceId(), req.GetPath(), fs.FileMode(req.GetMode()).Perm())
	if err != nil {
		return nil, err
	}
	return &providerv1.SetFileModeResponse{File: fileToWire(info)}, nil
}

func (s *server) ReadArchive(req *providerv1.ReadArchiveRequest, stream grpc.ServerStreamingServer[providerv1.ReadArchiveResponse]) error {
	p, err := capable[Archiver](s, CapabilityArchives)
	if err != nil {
		return err
	}
	content, err := p.ReadArchive(stream.Context(), ReadArchiveRequest{InstanceID: req.GetInstanceId(), Directory: req.GetDirectory(), Paths: req.GetPaths()})
	if err != nil {
		return err
	}
	defer content.Close()
	return sendChunks(content, stream, filechunk.FieldOfReadArchive)
}

func (s *server) WriteArchive(stream grpc.ClientStreamingServer[providerv1.WriteArchiveRequest, providerv1.WriteArchiveResponse]) error {
	p, err := capable[Archiver](s, CapabilityArchives)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return Errorf(CodeInvalidRequest, "the first message must be the header")
	}
	summary, err := p.WriteArchive(stream.Context(), header.GetInstanceId(), header.GetDirectory(), filechunk.NewReader(filechunk.Receive(stream, filechunk.FieldOfWriteArchive)))
	if err != nil {
		return err
	}
	return stream.SendAndClose(&providerv1.WriteArchiveResponse{Files: summary.Files, Bytes: summary.Bytes})
}
