// Entry of a report without rates.

import { PANELS, showReport } from './report_source.mjs';

showReport(PANELS);
