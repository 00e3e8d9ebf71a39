// Parser of server-sent events that are read by fetch, because EventSource cannot send a header.

/** Collects the text of a stream and passes each complete event to `onEvent(name, data)`, with data parsed as JSON. */
export class EventParser {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = '';
    this.name = '';
    this.data = [];
  }

  push(text) {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (const line of lines) this.line(line.endsWith('\r') ? line.slice(0, -1) : line);
  }

  line(line) {
    if (line === '') {
      if (this.data.length) this.onEvent(this.name || 'message', JSON.parse(this.data.join('\n')));
      this.name = '';
      this.data = [];
    } else if (line.startsWith('event:')) {
      this.name = line.slice(6).trim();
    } else if (line.startsWith('data:')) {
      this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
    // Comments keep the connection alive. The id is not used: the first events of a new stream are whole documents.
  }
}
