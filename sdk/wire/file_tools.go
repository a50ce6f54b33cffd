package wire

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/filechunk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// SearchFiles implements sdk.FileSearcher.
func (c *Client) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.search.SearchFiles(ctx, &providerv1.SearchFilesRequest{
		InstanceId: req.InstanceID, Path: req.Path, Pattern: req.Pattern, Literal: req.Literal, IgnoreCase: req.IgnoreCase,
		Glob: req.Glob, Limit: int32(min(req.Limit, 1<<30)),
	}, grpc.MaxCallRecvMsgSize(maxPart))
	return receiveList(stream, err, req.Limit, func(m *providerv1.SearchFilesResponse) (int, bool, error) {
		matches := make([]sdk.FileMatch, 0, len(m.GetMatches()))
		for _, wm := range m.GetMatches() {
			if len(wm.GetText()) > sdk.MaxMatchText || len(wm.GetPath()) > maxText {
				return 0, false, misbehaved("answered a match that is too long")
			}
			matches = append(matches, sdk.FileMatch{Path: wm.GetPath(), Line: int(max(wm.GetLine(), 0)), Column: int(max(wm.GetColumn(), 0)), Text: wm.GetText()})
		}
		if len(matches) == 0 {
			return 0, m.GetTruncated(), nil
		}
		return len(matches), m.GetTruncated(), found(matches)
	})
}

// ReplaceInFiles implements sdk.FileSearcher.
func (c *Client) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	resp, err := c.search.ReplaceInFiles(ctx, &providerv1.ReplaceInFilesRequest{InstanceId: req.InstanceID, Paths: req.Paths, Old: req.Old, New: req.New}, grpc.MaxCallRecvMsgSize(maxPart))
	if err != nil {
		return nil, DecodeError(err)
	}
	return decodeList(resp.GetFiles(), func(wr *providerv1.FileReplacement) (sdk.FileReplacement, error) {
		if len(wr.GetPath()) > maxText {
			return sdk.FileReplacement{}, misbehaved("answered a path that is not acceptable")
		}
		return sdk.FileReplacement{Path: wr.GetPath(), Count: max(wr.GetCount(), 0)}, nil
	})
}

// WatchFiles implements sdk.FileWatcher.
func (c *Client) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.watch.WatchFiles(callCtx, &providerv1.WatchFilesRequest{InstanceId: req.InstanceID, Path: req.Path, Recursive: req.Recursive}, grpc.MaxCallRecvMsgSize(maxPart))
	if err != nil {
		return DecodeError(err)
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return misbehaved("stopped watching files")
		case err != nil:
			return DecodeError(err)
		}
		if first {
			if err := ready(); err != nil {
				return err
			}
		}
		if len(m.GetChanges()) == 0 {
			continue
		}
		changes := make([]sdk.FileChange, 0, len(m.GetChanges()))
		for _, wc := range m.GetChanges() {
			if len(wc.GetPath()) > maxText {
				return misbehaved("answered a path that is not acceptable")
			}
			if !wordName().MatchString(wc.GetKind()) { // one of a later version may be new
				return misbehaved("told a change of an unacceptable kind")
			}
			changes = append(changes, sdk.FileChange{Kind: sdk.FileChangeKind(wc.GetKind()), Path: wc.GetPath()})
		}
		if err := changed(changes); err != nil {
			return err
		}
	}
}

// ReadArchive implements sdk.Archiver.
func (c *Client) ReadArchive(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.archives.ReadArchive(ctx, &providerv1.ReadArchiveRequest{InstanceId: req.InstanceID, Directory: req.Directory, Paths: req.Paths}, uncopied())
	if err != nil {
		cancel()
		return nil, DecodeError(err)
	}
	// The first message tells whether there is an archive at all.
	r := newReceived(cancel, stream, filechunk.FieldOfReadArchive)
	if err := r.Wait(); err != nil {
		cancel()
		if errors.Is(err, io.EOF) {
			return nil, misbehaved("sent an empty archive")
		}
		return nil, err
	}
	return r, nil
}

// WriteArchive implements sdk.Archiver.
func (c *Client) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.archives.WriteArchive(ctx, uncopied())
	if err != nil {
		return sdk.ArchiveSummary{}, DecodeError(err)
	}
	header := &providerv1.WriteArchiveHeader{InstanceId: instanceID, Directory: directory}
	err = upload(content, stream.Send(&providerv1.WriteArchiveRequest{Part: &providerv1.WriteArchiveRequest_Header{Header: header}}), stream, filechunk.FieldOfWriteArchive)
	if err != nil {
		return sdk.ArchiveSummary{}, err
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return sdk.ArchiveSummary{}, DecodeError(err)
	}
	return sdk.ArchiveSummary{Files: max(resp.GetFiles(), 0), Bytes: max(resp.GetBytes(), 0)}, nil
}

// EncodeMatch encodes a line that a search has found.
func EncodeMatch(m sdk.FileMatch) *providerv1.FileMatch {
	return &providerv1.FileMatch{
		Path: truncate(m.Path), Line: int32(m.Line), Column: int32(m.Column), Text: cutText(m.Text, sdk.MaxMatchText),
	}
}

// EncodeReplacement encodes what was replaced in a file.
func EncodeReplacement(r sdk.FileReplacement) *providerv1.FileReplacement {
	return &providerv1.FileReplacement{Path: truncate(r.Path), Count: r.Count}
}

// EncodeChange encodes a change that a watch has seen.
func EncodeChange(c sdk.FileChange) *providerv1.FileChange {
	return &providerv1.FileChange{Kind: string(c.Kind), Path: truncate(c.Path)}
}
