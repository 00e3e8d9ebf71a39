// Reads a document again every 10 s while the page is visible and connected.

import { Component } from './vendor/preact-11.2.0.mjs';
import { timeOf } from './elements.mjs';

const MILLISECONDS = 10000;

/**
 * Component whose document is at the address that `path(props)` returns; "" for none. `body()` is the manifest that is sent
 * to it, "" for none. State: {doc, at, error, path}.
 */
export class Refreshing extends Component {
  constructor(props) {
    super(props);
    this.state = { doc: null, at: 0, error: '', path: '' };
    this.refresh = () => this.load(this.path(this.props));
  }

  body() {
    return '';
  }

  componentDidMount() {
    this.refresh();
    this.timer = setInterval(() => {
      if (this.props.isLive && document.visibilityState === 'visible') this.refresh();
    }, MILLISECONDS);
  }

  componentWillUnmount() {
    clearInterval(this.timer);
    this.wanted = null;
  }

  componentDidUpdate(before) {
    const path = this.path(this.props);
    if (path !== this.path(before) || (this.props.isLive && !before.isLive)) this.load(path);
  }

  async load(path) {
    if (path !== this.state.path) this.setState({ doc: null, at: 0, error: '', path });
    this.wanted = path;
    if (!path) return;
    let found;
    try {
      found = { doc: await this.props.source.read(path, this.body()), at: timeOf(this.props.source), error: '' };
    } catch (error) {
      found = { error: error.status ? error.message : 'the operator cannot be reached' };
      // An object that is gone is no longer shown. After a lost connection the last document stays.
      if (error.status === 404 || error.status === 400) found.doc = null;
    }
    if (this.wanted === path) this.setState(found);
  }
}
